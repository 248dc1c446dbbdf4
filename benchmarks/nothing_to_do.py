"""What a run with nothing to do costs, against Snakemake on an empty Snakefile. Builds nothing.

    python -m benchmarks.nothing_to_do [CHECKOUT] [--configfile config/other.yaml] [--repeats 7]

CHECKOUT is a built one. Both take turns after one run each that is thrown away. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.timing import SNAKEMAKE, Usage, environment, heading, last_lines, row, summary, timed

EMPTY = "rule all:\n    default_target: True\n"
NOTHING = "Nothing to be done"
SIDES = ("nothing to do", "empty Snakefile")


def run(side: str, folder: Path, checkout: Path, log: Path, arguments: list[str]) -> Usage:
    """Time one run. Raises when it fails, or when there was something to do in the checkout."""
    command = [*SNAKEMAKE, "--cores", "8", "all", *(arguments if side == SIDES[0] else [])]
    usage = timed(command, folder, log, environment(checkout))
    if usage.code or (side == SIDES[0] and NOTHING not in log.read_text(encoding="utf-8")):
        raise RuntimeError(f"{folder}: exit code {usage.code}, and there should be nothing to do\n{last_lines(log)}")
    return usage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=Path())
    parser.add_argument("--configfile")
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    checkout, arguments = asked.checkout.resolve(), ["--configfile", asked.configfile] if asked.configfile else []
    used: dict[str, list[Usage]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as scratch:
        empty = Path(scratch, "empty")
        empty.mkdir()
        (empty / "Snakefile").write_text(EMPTY, encoding="utf-8")
        folders, log = dict(zip(SIDES, (checkout, empty), strict=True)), Path(scratch, "log")
        run(SIDES[0], checkout, checkout, log, [*arguments, "--dry-run"])
        for turn in range(asked.repeats + 1):
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                used[side].append(run(side, folders[side], checkout, log, arguments))
    print(f"{heading()}; {asked.repeats} repeats, median (spread)\n")
    print(row("", *SIDES, "ratio"))
    print(row(*["---"] * 4))
    for what in ("cpu", "wall"):
        values = {side: [getattr(usage, what) for usage in used[side][1:]] for side in SIDES}
        ratios = [one / other for one, other in zip(*values.values(), strict=True)]
        print(row(f"{what} s", *(summary(values[side]) for side in SIDES), summary(ratios)))


if __name__ == "__main__":
    main()
