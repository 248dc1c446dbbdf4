"""Tries defects of stage `files`: spoils a copy of an artifact and judges it. Prints nothing but what was refused.

Each artifact is first judged as it is, the same way: its inspection must pass, and a gate of accuracy that it fails
counts for nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.mutations import subjects
from tests.mutations.catalogue import Mutation, Outcome
from tests.mutations.subjects import REFUSED, Subject

from hallmark.launcher import WorkerError


def try_files(mutation: Mutation, subject: Subject, artifacts: Path, scratch: Path, accuracy: bool) -> list[str]:
    """The gates that fail a copy with the defect: by its inspection, and by its accuracy where only that may tell."""
    with subjects.spoilable(subject, artifacts, scratch / "copy") as files:
        mutation.apply(files)
        failed = judged(subject, files)
        inspected = set(mutation.caught_by) & set(failed)
        measurable = any(source_of(subject, gate) == "accuracy" for gate in mutation.caught_by)
        if not inspected and accuracy and measurable and REFUSED not in failed:
            failed = measured(subject, files, scratch)
    return failed


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


def outcomes(
    chosen: Mapping[str, Sequence[Mutation]], artifacts: Path, scratch: Path, accuracy: bool
) -> Iterator[Outcome]:
    """What comes of the defects, by artifact (`chosen`): first of the artifact as it is, then of each."""
    for name, mutations in chosen.items():
        subject = subjects.read(artifacts, name, subjects.TARGETS)
        unsound = judged(subject, subject.files)
        amiss = [gate for gate in unsound if source_of(subject, gate) not in ("accuracy", "speed")]
        yield Outcome(None, name, tuple(amiss))
        for mutation in mutations:
            failed = try_files(mutation, subject, artifacts, scratch, accuracy)
            yield Outcome(mutation, name, tuple(gate for gate in failed if gate not in unsound))
