"""Peak memory of the jobs in a built store, over the checkpoint's size and beside the plan's estimate. Runs no job.

    python -m benchmarks.memory [--configfile config/config.yaml]

Run in a built checkout. A job that is not in the store, or that had no process of its own, has no row. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.checkouts import CONFIG, plan_of
from benchmarks.timing import heading, row

from hallmark import store
from hallmark.node import Node
from hallmark.plan import Plan

MB = 1_000_000
VERBS = ("fetch", "convert", "reference", "measure_accuracy", "measure_speed")


def peak_mb(entry: store.Entry) -> float | None:
    """Peak resident memory of an entry's worker, or of both engines of a speed measurement."""
    if entry.manifest["verb"] == "measure_speed":
        metrics = entry.json("measurement.json")["metrics"]
        return float(metrics["peak_memory_mb"]["value"] + metrics["source_peak_memory_mb"]["value"])
    process = entry.manifest["notes"].get("process")
    return process["peak_memory"] / MB if process else None


def checkpoint_mb(plan: Plan, model: str) -> float:
    """Size of a model's weight files, as converted."""
    (source,) = (node for node in plan.nodes() if node.verb == "fetch" and node.subject == (model, "weights"))
    files = store.read(plan.root / source.place).manifest["files"]
    return float(sum(file["size"] for name, file in files.items() if name.endswith((".safetensors", ".bin"))) / MB)


def rows(plan: Plan) -> Iterator[tuple[Node, float, float]]:
    """Each job of the plan that is in the store, with its peak and its checkpoint's size, in MB."""
    for verb in VERBS:
        for node in plan.nodes():
            if node.verb == verb and node.manifest(plan.root).exists():
                peak = peak_mb(store.read(plan.root / node.place))
                if peak is not None:
                    yield node, peak, checkpoint_mb(plan, node.subject[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configfile", type=Path, default=CONFIG)
    asked = parser.parse_args()
    print(f"{heading()}\n")
    print(row("job", "checkpoint MB", "peak MB", "peak / checkpoint", "estimate MB", "estimate / peak"))
    print(row("---", *["---:"] * 5))
    for node, peak, size in rows(plan_of(Path(), asked.configfile)):
        estimate = node.memory_mb
        numbers = (f"{size:.0f}", f"{peak:.0f}", f"{peak / size:.1f}", f"{estimate}", f"{estimate / peak:.2f}")
        print(row(f"{node.verb} {node.name}", *numbers))


if __name__ == "__main__":
    main()
