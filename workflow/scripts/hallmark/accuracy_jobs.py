"""The bodies of the two rules that compare an artifact's answers with its source's. Workers answer; tasks compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hallmark import records, workers
from hallmark.jobs import Job


def reference(job: Job) -> Mapping[str, Any]:
    """What the source answers on the evaluation data."""
    paths: dict[str, Any] = {role: str(entry.files) for role, entry in job.inputs.items()}
    return workers.run(
        job, "reference", task=job.recipe["task"], **paths, options=workers.with_code(job, job.recipe["options"])
    )


def measure_accuracy(job: Job) -> Mapping[str, Any]:
    """An artifact on the inputs of the reference."""
    artifact, recipe = job.inputs["artifact"], job.recipe
    notes = workers.run(
        job,
        "accuracy",
        task=recipe["task"],
        format=recipe["format"],
        variant=recipe["variant"],
        files=str(artifact.files),
        reference=str(job.inputs["reference"].files),
        data=str(job.inputs["data"].files),
        options=recipe["options"],
    )
    conditions = {
        **{name: recipe[name] for name in ("options", "instructions")},
        "threads": job.node["cpus"],
        "versions": notes["versions"],
    }
    workers.write_json(job, records.MEASUREMENT, records.measurement(job, "accuracy", notes.pop("result"), conditions))
    return notes
