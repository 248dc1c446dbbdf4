"""Rebuild proof: converts an artifact once more, elsewhere, and says how the files differ. Stores nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hallmark import digest, formats, store
from hallmark.launcher import launch
from hallmark.plan import Artifact

PIECE = 1 << 22  # bytes looked at together


@dataclass(frozen=True)
class Proof:
    """What came of a rebuild: a line for each file, and whether all are the same, or say the same to the inspection."""

    lines: tuple[str, ...]
    same_bytes: bool
    same_findings: bool


def rebuild(artifact: Artifact, root: Path, scratch: Path, timeout_s: float) -> Proof:
    """Convert with the recipe, inputs and toolchain of the plan into a folder below `scratch`, and compare.

    Raises FileNotFoundError when the artifact, an input or the toolchain is not there yet, store.Damaged for an entry
    that is not whole, WorkerError when the conversion fails.
    """
    node = artifact.convert
    made = store.verify(root / node.place)
    inputs = {role: store.verify(root / other.place).files for role, other in node.inputs.items()}
    request = {
        "action": "convert",
        "format": artifact.format,
        "inputs": {role: str(folder.absolute()) for role, folder in inputs.items()},
        "options": {**node.recipe["options"], "threads": node.cpus},
    }
    with tempfile.TemporaryDirectory(dir=scratch, prefix="rebuild-") as folder:
        out, work = Path(folder) / "files", Path(folder) / "work"
        out.mkdir()
        work.mkdir()
        asked = {**request, "out": str(out.absolute())}
        launch(node.toolchains["worker"].folder, asked, log=scratch / "rebuild.log", out=work, timeout_s=timeout_s)
        lines = compare(made.files, out)
        if not any(lines.values()):
            return Proof(("every file has the same bytes",), True, True)
        first, second = (_findings(artifact, files, inputs["source"]) for files in (made.files, out))
        names = [name for name in first if first[name] != second.get(name)]
        changed = [f"{name}: {first[name]}, rebuilt {second.get(name)}" for name in names]
        told = [f"{name}: {what or 'same bytes'}" for name, what in lines.items()]
        return Proof((*told, *(changed or ["the inspection finds the same in both"])), False, not changed)


def compare(first: Path, second: Path) -> dict[str, str]:
    """For each file of two folders, how it differs; '' where it does not."""
    there = digest.describe(first), digest.describe(second)
    found = {}
    for name in sorted(there[0].keys() | there[1].keys()):
        if name not in there[0] or name not in there[1]:
            found[name] = f"only in the {'rebuilt' if name in there[1] else 'stored'} artifact"
        elif there[0][name] == there[1][name]:
            found[name] = ""
        else:
            found[name] = _difference(first / name, second / name)
    return found


def _difference(first: Path, second: Path) -> str:
    """`12 of 345 bytes differ, the first at 67`."""
    import numpy as np

    sizes = first.stat().st_size, second.stat().st_size
    count, start = abs(sizes[0] - sizes[1]), min(sizes)
    with first.open("rb") as one, second.open("rb") as other:
        for place in range(0, min(sizes), PIECE):
            pieces = [np.frombuffer(stream.read(PIECE), np.uint8)[: min(sizes) - place] for stream in (one, other)]
            places = np.flatnonzero(pieces[0] != pieces[1])
            count += len(places)
            start = min(start, place + int(places[0])) if len(places) else start
    return f"{count} of {max(sizes)} bytes differ, the first at {start}"


def _findings(artifact: Artifact, files: Path, source: Path) -> Mapping[str, Any]:
    recipe = artifact.convert.recipe
    adapter = formats.get(artifact.format)
    found: Mapping[str, Any] = adapter.inspect(files, source, recipe["task"], recipe["options"]).metrics
    return found
