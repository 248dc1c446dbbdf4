"""What an inspection and a measurement are written down as, with the digest of what they were taken on. Takes none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hallmark.formats import Inspection
    from hallmark.jobs import Job

INSPECTION, MEASUREMENT = "inspection.json", "measurement.json"
KINDS = ("accuracy", "choices", "speed", "loadgen", "release")  # of measurements; the first and `speed` always are


def inspection(job: Job, found: Inspection) -> dict[str, Any]:
    """The content of `inspection.json`."""
    return {
        "subject": job.subject,
        "artifact": job.inputs["artifact"].digest,
        "metrics": dict(found.metrics),
        "facts": found.facts,
    }


def measurement(job: Job, kind: str, metrics: Mapping[str, Any], conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `measurement.json`; `kind` is one of KINDS."""
    return {
        "kind": kind,
        "subject": job.subject,
        "task": job.recipe["task"],
        "artifact": job.inputs["artifact"].digest,
        "reference": job.inputs["reference"].digest,
        "metrics": metrics,
        "conditions": conditions,
    }
