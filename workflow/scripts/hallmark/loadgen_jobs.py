"""The body of the rule that has MLPerf LoadGen drive an artifact. What LoadGen does is in `loadgen`; judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hallmark import loadgen_results, records, tasks, workers
from hallmark.jobs import Job

SAMPLES = 256  # requests that LoadGen draws from
COPIED = ("task", "format", "variant")


def measure_loadgen(job: Job) -> Mapping[str, Any]:
    """An artifact under LoadGen's traffic; nothing else runs meanwhile. LoadGen's logs are kept beside the numbers."""
    recipe, scenarios = job.recipe, job.recipe["scenarios"]
    options = {**recipe["options"], "threads": recipe["threads"]}
    served = {"action": "serve", **{name: recipe[name] for name in COPIED}, "options": options}
    engine = workers.engine(job, "engine", {**served, "files": str(job.inputs["artifact"].files)})
    answer = workers.run(
        job,
        "loadgen",
        alone=True,
        engine={"argv": list(engine.argv), "env": dict(engine.env), "log": str(job.log.absolute())},
        task=recipe["task"],
        samples=tasks.get(recipe["task"]).requests(job.inputs["reference"].files, options, SAMPLES),
        scenarios=scenarios,
        options=options,
    )
    metrics, outcomes = loadgen_results.read(job.draft.files, list(scenarios))
    conditions = {
        **answer["result"],
        "versions": answer["versions"],
        "scenarios": {name: {**outcome, "settings": scenarios[name]} for name, outcome in outcomes.items()},
        "options": options,
        "hardware_class": recipe["hardware_class"],
        "attempt": recipe["attempt"],
    }
    workers.write_json(job, records.MEASUREMENT, records.measurement(job, "loadgen", metrics, conditions))
    return {}
