"""Selection: which candidate a target takes for a model. Judges nothing; it reads verdicts in the config's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def choose(
    model: str, target: str, candidates: Sequence[str], verdicts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The first candidate (`format/variant`, in order of preference) whose verdict is `pass`, or none, as JSON.

    `verdicts` maps each candidate to its verdict. Raises ValueError when one is missing, or speaks of another model or
    target: that is a fault of the plan, and a selection made from it could not be trusted.
    """
    listed = [_candidate(model, target, name, verdicts.get(name)) for name in candidates]
    passing = [entry["artifact"] for entry in listed if entry["verdict"] == "pass"]
    return {"model": model, "target": target, "selected": passing[0] if passing else None, "candidates": listed}


def _candidate(model: str, target: str, name: str, verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    subject = f"{model}/{name}"
    if verdict is None:
        raise ValueError(f"{target}: no verdict on {subject}")
    if (verdict["subject"], verdict["target"]) != (subject, target):
        raise ValueError(
            f"{target}: the verdict given for {subject} is on {verdict['subject']} for {verdict['target']}"
        )
    return {"artifact": name, "verdict": verdict["verdict"], "digest": verdict["artifact"], "why": verdict["why"]}
