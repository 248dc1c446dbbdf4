"""Numbers of an artifact against the last release, by the same measurement as against its source. Judges nothing.

`speed.measure` times two engines in turns, whoever the second is. Here the second is the released artifact, so its
ratios get names of their own, and what it says of a "source" is said of the release. Its other numbers are dropped:
those of the artifact itself belong to the measurement against the source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import bundle, digest, speed, statistics, tasks
from hallmark.engine import Command, EngineError
from hallmark.statistics import Estimate

SOURCE, OTHER = speed.SIDES[1], "release"
BY_SIDE = ("engines", "cpus_used_while_waiting")  # conditions that have a part for each side


class ReleasedError(RuntimeError):
    """What was released is not what it was when the run was planned."""


def sizes(files: digest.Described, released_bytes: int) -> dict[str, Estimate]:
    """The ratio of sizes, from the files of the artifact as its manifest lists them."""
    own = sum(entry["size"] for entry in files.values())
    return {f"{tasks.RELEASE}size_ratio": statistics.exact(released_bytes / own, 1)}


def copy(folder: Path, wanted: str, out: Path) -> Path:
    """Copy the artifact with the tree digest `wanted` out of a bundle into `out`, without what the bundle adds to it.

    Every copy is compared with the manifest. Raises ReleasedError or BundleError when it is another artifact by now.
    """
    try:
        manifest = json.loads((folder / bundle.MANIFEST).read_text(encoding="utf-8"))
        files: digest.Described = {name: manifest["files"][name] for name in manifest["artifact"]["files"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReleasedError(f"{folder}: no bundle any more ({type(error).__name__}: {error})") from None
    if digest.of_tree(files) != wanted:
        raise ReleasedError(f"{folder}: holds {digest.of_tree(files)[:12]}, the plan was made for {wanted[:12]}")
    for name, expected in sorted(files.items()):
        bundle.copy_file(folder / name, out / name, expected)
    return out


def measure(
    artifact: Command,
    released: Command,
    task: str,
    reference: Path,
    options: Mapping[str, Any],
    log: Path,
    limits: Mapping[str, list[float]],
) -> tuple[dict[str, Estimate], dict[str, Any], dict[str, Any]]:
    """Measure both in turns, as `speed.measure` does; `limits` are those of the ratios to the release, by name.

    Raises EngineError when an engine fails or hangs.
    """
    own = {name.removeprefix(tasks.RELEASE): bounds for name, bounds in limits.items()}
    try:
        metrics, samples, conditions = speed.measure(artifact, released, task, reference, options, log, own)
    except EngineError as error:
        raise EngineError(str(error).replace(f"engine of the {SOURCE}", f"engine of the last {OTHER}", 1)) from None
    known = tasks.metrics(task)
    named = {f"{tasks.RELEASE}{name}": found for name, found in metrics.items()}
    ratios = {name: found for name, found in named.items() if name in known}
    conditions |= {part: {_side(name): of_side for name, of_side in conditions[part].items()} for part in BY_SIDE}
    first = [_side(name) for name in samples["first"]]
    return ratios, {_side(name): times for name, times in samples.items()} | {"first": first}, conditions


def _side(name: str) -> str:
    """`source_load` is `release_load` here."""
    return f"{OTHER}{name.removeprefix(SOURCE)}" if name.startswith(SOURCE) else name
