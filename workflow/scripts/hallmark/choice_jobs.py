"""The bodies of the two rules that ask labelled questions: of the source, and of an artifact. They score nothing.

The worker runs lm-evaluation-harness (`hallmark.harness`) in a toolchain of its own, and starts the engine that it asks
in the engine's toolchain: PyTorch for the source, the artifact's own for an artifact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hallmark import records, workers
from hallmark.jobs import Job


def reference_choices(job: Job) -> Mapping[str, Any]:
    """What the source chooses."""
    recipe, options = job.recipe, {"threads": job.node["cpus"]}
    source = str(job.inputs["source"].files)
    asked = {"task": recipe["task"], "source": source, "options": workers.with_code(job, options)}
    return _ask(job, "source", asked, None)


def measure_choices(job: Job) -> Mapping[str, Any]:
    """An artifact on the same questions."""
    recipe = job.recipe
    asked = {
        **{name: recipe[name] for name in ("task", "format", "variant")},
        "files": str(job.inputs["artifact"].files),
        "options": {"threads": job.node["cpus"]},
    }
    notes = _ask(job, "artifact", asked, str(job.inputs["reference"].files))
    found = notes["result"]
    conditions = {
        "instructions": recipe["instructions"],
        "threads": job.node["cpus"],
        "versions": {**notes["versions"], **found["engine"]},
    }
    measured = records.measurement(job, "choices", found.pop("metrics"), conditions)
    workers.write_json(job, records.MEASUREMENT, measured)
    return notes


def _ask(job: Job, name: str, asked: Mapping[str, Any], reference: str | None) -> dict[str, Any]:
    command = workers.engine(job, "engine", {"action": "serve", **asked})
    return workers.run(
        job,
        "questions",
        engine={"name": name, "argv": command.argv, "env": command.env, "log": str(job.log.absolute())},
        data=str(job.inputs["data"].files),
        reference=reference,
        options={"timeout_s": 60 * job.settings["time_limit_minutes"]},
    )
