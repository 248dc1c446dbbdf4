"""Spoils the demo one defect at a time and says which gate catches each: sources, artifacts, running engines.

    python -m tests.mutations [--stage source files runner] [--only PATTERN] [--subject PATTERN] [--artifacts FOLDER]
                              [--markdown FILE] [--no-accuracy] [--blocks 4]

Needs a built demo (the README's first command). Prints a row for each defect and subject, each subject as it is among
them, then how many each gate caught; exits with 1 when a defect is not caught or a sound subject does not pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from tests.mutations import on_artifacts, on_runners, on_sources, subjects
from tests.mutations.catalogue import Mutation, Outcome, every
from tests.mutations.subjects import NotBuilt

STAGES = ("source", "files", "runner")
Chosen = dict[str, list[Mutation]]  # by subject


def choose(stage: str, only: str, subject: str) -> Chosen:
    """The defects of a stage to try, by subject; `only` and `subject` are patterns with * and ?."""
    found: Chosen = {}
    for mutation in every():
        for name in mutation.subjects:
            if mutation.stage == stage and fnmatch(mutation.name, only) and fnmatch(name, subject):
                found.setdefault(name, []).append(mutation)
    return found


def row(outcome: Outcome) -> str:
    """A line of the table that is printed while it runs."""
    name, wanted, words = "none", "", ("sound", "NOT SOUND")
    if outcome.mutation:
        name, wanted, words = outcome.mutation.name, " or ".join(outcome.mutation.caught_by), ("caught", "NOT CAUGHT")
    found = [*outcome.failed, *(f"({gate})" for gate in outcome.unsure)]
    return f"| {words[not outcome.good]} | {name} | {outcome.subject} | {', '.join(found)} | {wanted} | {outcome.why} |"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many defects each gate caught, alone or with others, and how many were caught at all."""
    seeded = [outcome for outcome in outcomes if outcome.mutation]
    gates = Counter(gate for outcome in seeded for gate in outcome.caught_by)
    unsound = len(outcomes) - len(seeded) - sum(outcome.good for outcome in outcomes if not outcome.mutation)
    lines = [f"{count:5} {gate}" for gate, count in gates.most_common()]
    lines.append(f"{sum(outcome.good for outcome in seeded)} of {len(seeded)} caught, {unsound} subjects not sound")
    return "\n".join(lines)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """A table by defect: the formats it was tried in, what caught it, and the public report of one like it."""
    lines = ["| defect | artifacts of | caught by | as in |", "|---|---|---|---|"]
    by_defect: dict[str, list[tuple[Mutation, Outcome]]] = {}
    for outcome in outcomes:
        if outcome.mutation:
            by_defect.setdefault(outcome.mutation.name, []).append((outcome.mutation, outcome))
    for name, found in by_defect.items():
        formats = Counter(outcome.subject.split("/")[min(1, outcome.subject.count("/"))] for _, outcome in found)
        tried = ", ".join(f"{format_name} {count}" for format_name, count in formats.items())
        gates = Counter(gate for _, outcome in found for gate in outcome.caught_by)
        told = ", ".join(f"`{gate}`" for gate, _ in gates.most_common())
        missed = [outcome.subject for _, outcome in found if not outcome.good]
        told += f"; **not** on {', '.join(missed)}" if missed else ""
        reports = dict.fromkeys(mutation.report for mutation, _ in found if mutation.report)
        lines.append(f"| {name} | {tried} | {told} | {', '.join(reports)} |")
    return "\n".join(lines) + "\n"


def attempts(asked: argparse.Namespace, chosen: Mapping[str, Chosen], scratch: Path) -> Iterator[Outcome]:
    """What comes of the chosen defects, stage by stage."""
    artifacts = asked.artifacts.resolve()
    return chain(
        on_sources.outcomes(chosen.get("source", {}), artifacts),
        on_artifacts.outcomes(chosen.get("files", {}), artifacts, scratch, not asked.no_accuracy),
        on_runners.outcomes(chosen.get("runner", {}), artifacts, scratch, asked.blocks),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=STAGES, help="default: all three")
    parser.add_argument("--only", default="*", help="names of defects, with * and ?")
    parser.add_argument("--subject", default="*", help="names of artifacts or models, with * and ?")
    parser.add_argument("--artifacts", type=Path, default=subjects.ROOT / "artifacts", help="of a built demo")
    parser.add_argument("--markdown", type=Path, help="write the table for the documentation to this file")
    parser.add_argument("--no-accuracy", action="store_true", help="judge artifacts by inspections alone")
    parser.add_argument("--blocks", type=int, default=4, help="windows of text on which a language model runs")
    asked = parser.parse_args()
    chosen = {stage: choose(stage, asked.only, asked.subject) for stage in asked.stage}
    if not any(chosen.values()):
        parser.error(f"no defect of {', '.join(asked.stage)} is called {asked.only!r} on {asked.subject!r}")
    outcomes: list[Outcome] = []
    print("| | defect | subject | failed (and unsure) | wanted | why |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="hallmark-mutations-") as scratch:
        try:
            for outcome in attempts(asked, chosen, Path(scratch)):
                outcomes.append(outcome)
                print(row(outcome), flush=True)
        except NotBuilt as error:
            sys.exit(f"{error}: build the demo there first (the first command of the README)")
    print(summary(outcomes))
    if asked.markdown:
        asked.markdown.write_text(markdown(outcomes), encoding="utf-8")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
