"""Spoils the demo's artifacts one defect at a time and says which gate catches it.

    python -m tests.mutations.run [--only TEXT] [--artifacts FOLDER] [--no-accuracy] [--markdown FILE]

Prints a line for each defect and artifact, then counts by gate, and exits 1 when one is not caught. Each artifact is
first judged as it is, the same way: its inspection must pass, and a gate of accuracy that it fails counts for nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutations import subjects
from tests.mutations.catalogue import Mutation, every
from tests.mutations.subjects import REFUSED, Subject

from hallmark.launcher import WorkerError

ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "config/targets.yaml"


@dataclass(frozen=True)
class Outcome:
    """What came of one defect in one artifact: the gates that failed."""

    mutation: Mutation
    subject: str
    failed: tuple[str, ...]

    @property
    def caught(self) -> bool:
        return bool(set(self.failed) & set(self.mutation.caught_by))

    @property
    def by(self) -> list[str]:
        """The gates that failed, those that were wanted first."""
        return sorted(self.failed, key=lambda name: name not in self.mutation.caught_by)


def try_files(mutation: Mutation, subject: Subject, artifacts: Path, scratch: Path, accuracy: bool = True) -> Outcome:
    """Spoil a copy of the artifact and judge it: by its inspection, and by its accuracy where only that may tell."""
    with subjects.spoilable(subject, artifacts, scratch / "copy") as files:
        mutation.apply(files)
        failed = judged(subject, files)
        inspected = set(mutation.caught_by) & set(failed)
        measurable = any(source_of(subject, gate) == "accuracy" for gate in mutation.caught_by)
        if not inspected and accuracy and measurable and REFUSED not in failed:
            failed = measured(subject, files, scratch)
    return Outcome(mutation, subject.name, tuple(failed))


def source_of(subject: Subject, gate: str) -> str:
    """What measures a gate's metric: inspect, accuracy or speed; '' for a refusal."""
    metric = subject.metrics.get(gate)
    return metric.source if metric else ""


def judged(subject: Subject, files: Path) -> list[str]:
    """The gates that fail by the inspection alone."""
    try:
        return subject.failed(subject.inspect(files))
    except (ValueError, OSError, KeyError) as error:
        print(f"  {subjects.short(error)}", file=sys.stderr)
        return [REFUSED]


def measured(subject: Subject, files: Path, scratch: Path) -> list[str]:
    """The gates that fail when the accuracy is measured anew."""
    with tempfile.TemporaryDirectory(dir=scratch) as out:
        try:
            found = subject.measure_accuracy(files, Path(out) / "out", scratch / "accuracy.log")
        except WorkerError as error:
            print(f"  {subjects.short(error)}", file=sys.stderr)
            return [REFUSED]
    return subject.failed(subject.inspect(files), found)


def run(mutations: Sequence[Mutation], artifacts: Path, scratch: Path, accuracy: bool) -> list[Outcome]:
    """Try all defects of files, artifact by artifact. Raises SystemExit where an artifact fails before it is spoilt."""
    outcomes = []
    for name in dict.fromkeys(name for mutation in mutations for name in mutation.subjects):
        subject = subjects.read(artifacts, name, TARGETS)
        unsound = judged(subject, subject.files)
        if amiss := [gate for gate in unsound if source_of(subject, gate) not in ("accuracy", "speed")]:
            raise SystemExit(f"{name} is not sound as it is: {', '.join(amiss)}")
        tried = [mutation for mutation in mutations if name in mutation.subjects]
        for mutation in tried:
            outcome = try_files(mutation, subject, artifacts, scratch, accuracy)
            outcome = Outcome(mutation, name, tuple(gate for gate in outcome.failed if gate not in unsound))
            outcomes.append(outcome)
            word = "caught" if outcome.caught else "NOT CAUGHT"
            wanted = ", ".join(mutation.caught_by)
            print(f"{word:10} | {mutation.name} | {name} | {', '.join(outcome.by) or '-'} | wanted: {wanted}")
            sys.stdout.flush()
    return outcomes


def by_gate(outcomes: Iterable[Outcome]) -> Counter[str]:
    """How many defects each gate caught, alone or with others."""
    return Counter(gate for outcome in outcomes for gate in outcome.failed if gate in outcome.mutation.caught_by)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """A table by defect: the formats it was tried in, what caught it, and the public report of one like it."""
    lines = ["| defect | artifacts of | caught by | as in |", "|---|---|---|---|"]
    for name in dict.fromkeys(outcome.mutation.name for outcome in outcomes):
        rows = [outcome for outcome in outcomes if outcome.mutation.name == name]
        formats = Counter(row.subject.split("/")[1] for row in rows)
        tried = ", ".join(f"{format_name} {count}" for format_name, count in formats.items())
        gates = Counter(gate for row in rows for gate in row.failed if gate in row.mutation.caught_by)
        told = ", ".join(f"`{gate}`" for gate, _ in gates.most_common())
        missed = [row.subject for row in rows if not row.caught]
        told += f"; **not** on {', '.join(missed)}" if missed else ""
        reports = dict.fromkeys(row.mutation.report for row in rows if row.mutation.report)
        lines.append(f"| {name} | {tried} | {told} | {', '.join(reports)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of defects or artifacts to try")
    parser.add_argument("--artifacts", type=Path, default=ROOT / "artifacts", help="the folder of a built demo")
    parser.add_argument("--no-accuracy", action="store_true", help="judge by inspections alone")
    parser.add_argument("--markdown", type=Path, help="write the table for the documentation to this file")
    asked = parser.parse_args()
    found = [one for one in every() if one.stage == "files"]
    mutations = [
        Mutation(one.name, one.stage, names, one.caught_by, one.apply, one.report)
        for one in found
        if (names := tuple(name for name in one.subjects if asked.only in f"{one.name} {name}"))
    ]
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        outcomes = run(mutations, asked.artifacts.resolve(), Path(scratch), not asked.no_accuracy)
    print("\n".join(f"{count:5} {gate}" for gate, count in by_gate(outcomes).most_common()))
    print(f"{sum(outcome.caught for outcome in outcomes)} of {len(outcomes)} caught")
    if asked.markdown:
        asked.markdown.write_text(markdown(outcomes), encoding="utf-8")
    return 0 if all(outcome.caught for outcome in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
