"""What the plans of earlier runs were, beside the store: for `hallmark why` and `hallmark gc`. Decides no rebuild."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import digest
from hallmark.plan import Plan

FOLDER = ".plans"
KEPT = 50


def remember(plan: Plan) -> None:
    """Write the plan's entries and their components, once for each plan that differs from the last one."""
    nodes: dict[str, Any] = {}
    for node in plan.nodes():
        name = f"{node.verb} {node.name}"  # a model has another reference where an artifact is measured on more text
        known = f"{name} {node.key}" if name in nodes else name
        nodes[known] = {"place": node.place, "components": node.components}
    identity = digest.of_value(nodes)
    folder = plan.root / FOLDER
    before = _files(folder)
    if before and before[-1].stem.endswith(identity[:12]):
        return
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{uuid.uuid4().hex}"
    fresh.write_text(json.dumps(nodes, sort_keys=True), encoding="utf-8")
    fresh.rename(folder / f"{time.time_ns():020d}-{identity[:12]}.json")
    for old in before[: max(0, len(before) + 1 - KEPT)]:
        old.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def places(root: Path, last: int) -> set[str]:
    """The places of all entries that the last `last` different plans of this store refer to. Two checkouts that take
    turns on one store write their plans in turns, so the same plan counts once."""
    different = {path.stem.partition("-")[2]: path for path in _files(root / FOLDER)}  # of each plan the newest
    kept = sorted(different.values())[-last:] if last else []
    return {entry["place"] for path in kept for entry in _read(path).values()}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        plan: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return plan
    except (OSError, ValueError):
        return {}


def before(root: Path, name: str, components: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The components of `verb subject` in the newest plan in which they were others; None when there is none."""
    for path in reversed(_files(root / FOLDER)):
        entry = _read(path).get(name)
        if entry and entry["components"] != components:
            found: Mapping[str, Any] = entry["components"]
            return found
    return None


def changes(old: Any, new: Any, place: str = "") -> list[str]:
    """The components that differ, one line each: `recipe.options.type: Q4_K_M -> Q5_K_M`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        lines = []
        for key in sorted(old.keys() | new.keys()):
            here = f"{place}.{key}" if place else str(key)
            if key not in old:
                lines.append(f"{here}: new, {_short(new[key])}")
            elif key not in new:
                lines.append(f"{here}: gone, was {_short(old[key])}")
            else:
                lines += changes(old[key], new[key], here)
        return lines
    return [] if old == new else [f"{place}: {_short(old)} -> {_short(new)}"]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
