"""What a run that went well says at its end: what was released, what is open, and where to look. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hallmark import bundle, release, store
from hallmark.plan import Plan


def lines(plan: Plan) -> Iterator[str]:
    """Lines for the console; none after a run of a part of the plan, which ends without a release."""
    published = [_published(plan, choice.target, choice.model) for choice in plan.choices]
    if not published or not all(path.exists() for path in published):
        return
    yield f"released in {release.FOLDER / plan.release}:"
    for choice in plan.choices:
        chosen = store.read(plan.root / choice.select.place).json("selection.json")
        passed = sum(candidate["verdict"] == "pass" for candidate in chosen["candidates"])
        count = len(chosen["candidates"])
        yield f"  {choice.target}/{choice.model}  {chosen['selected']}  ({passed} of {count} candidates passed)"
    noisy = [
        f"{artifact.name} for {target}"
        for artifact in plan.artifacts
        for target, judge in artifact.judges.items()
        if store.read(plan.root / judge.place).json("verdict.json")["verdict"] == "inconclusive"
    ]
    if noisy:
        yield f"inconclusive, which the next run may measure again: {', '.join(noisy)}"
    yield f"every number: artifacts/{plan.report.link}/index.html"


def _published(plan: Plan, target: str, model: str) -> Path:
    return release.FOLDER / plan.release / target / model / bundle.MANIFEST
