"""What the workflow costs: `all` from nothing against one bash script that calls the same tools by hand.

    python -m benchmarks.overhead [--config config/config.yaml] [--repeats 5] [--cores 8]

Both start from a fresh checkout with warm toolchains, and take turns. Prints a table in Markdown. Measures no model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import by_hand, checkouts
from benchmarks.timing import SNAKEMAKE, Usage, environment, heading, last_lines, row, summary, timed

from hallmark import digest, store, toolchains
from hallmark.plan import Plan

SIDES = ("snakemake", "by hand")


def with_snakemake(checkout: Path, plan: Plan, cores: int) -> Usage:
    """Time `snakemake all`. Raises when an entry is missing after it; that a target is refused is no failure."""
    log = checkout / "snakemake.log"
    usage = timed([*SNAKEMAKE, "--cores", str(cores), "all"], checkout, log, environment(checkout))
    missing = [f"{node.verb} {node.name}" for node in plan.nodes() if not node.manifest(checkout / plan.root).exists()]
    if missing:
        raise RuntimeError(f"snakemake left no {', '.join(missing)}\n{last_lines(log)}")
    return usage


def with_script(checkout: Path, plan: Plan) -> Usage:
    """Time the script. Raises when it fails."""
    script = by_hand.write(plan, checkout)
    log = checkout / "by_hand.log"
    usage = timed(["bash", script], checkout, log)
    if usage.code:
        newest = max([log, *(script.parent / "logs").iterdir()], key=lambda path: path.stat().st_mtime)
        raise RuntimeError(f"{script}: exit code {usage.code}\n{last_lines(newest)}")
    return usage


def different(plan: Plan, built: Path, script: Path) -> list[str]:
    """The artifacts that are not bit for bit the same on both sides; where all are, both did the same work."""
    found = []
    for node in plan.nodes():
        if node.verb == "convert":
            files = built / plan.root / node.place / store.FILES, by_hand.out_of(node, script)
            one, other = (digest.of_tree(digest.describe(folder)) for folder in files)
            if one != other:
                found.append(node.name)
    return found


def repeat(config: str, cores: int, number: int, scratch: Path) -> Iterator[dict[str, Usage]]:
    """`number` times both sides, the first in turns; yields what both used, and says when they made different bytes."""
    make = checkouts.maker(config, scratch)
    for turn in range(number):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            places = {side: Path(folder, side.replace(" ", "_")) for side in SIDES}
            for place in places.values():
                make(place)
            plan = checkouts.plan_of(places["snakemake"])
            for tool in plan.toolchains():
                toolchains.make(tool.name, tool.torch_build)
            used = {}
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                place = places[side]
                used[side] = with_snakemake(place, plan, cores) if side == "snakemake" else with_script(place, plan)
            differing = different(plan, places["snakemake"], places["by hand"] / "by_hand")
            if differing:
                print(f"not the same bytes on both sides: {', '.join(differing)}", file=sys.stderr)
            yield used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=checkouts.TINY, help="a configuration file, or `tiny`: the tests' model")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", type=int, default=8, help="given to Snakemake; both sides use what CPUs there are")
    parser.add_argument("--scratch", type=Path, help="where to work; default: the system's folder for such")
    asked = parser.parse_args()
    print(f"{heading()}; config `{asked.config}`, `--cores {asked.cores}`\n", flush=True)
    print(row("repeat", *(f"{side}, {what} s" for side in SIDES for what in ("wall", "CPU")), "wall ratio"))
    print(row(*["---"] * 6), flush=True)
    runs: list[dict[str, Usage]] = []
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch:
        for used in repeat(asked.config, asked.cores, asked.repeats, Path(scratch).resolve()):
            runs.append(used)
            numbers = [f"{value:.1f}" for side in SIDES for value in (used[side].wall, used[side].cpu)]
            ratio = used["snakemake"].wall / used["by hand"].wall
            print(row(f"{len(runs)}, {next(iter(used))} first", *numbers, f"{ratio:.2f}"), flush=True)
    print()
    for what in ("wall", "cpu"):
        values = {side: [getattr(used[side], what) for used in runs] for side in SIDES}
        ratios = [one / other for one, other in zip(*values.values(), strict=True)]
        shown = ", ".join(f"{side} {summary(values[side], 1)} s" for side in SIDES)
        print(f"- {what}: {shown}, ratio {summary(ratios)}")


if __name__ == "__main__":
    main()
