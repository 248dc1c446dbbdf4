"""Tries defects of stage `source`: spoils a copy of a checkpoint and lints it. Judges no artifact.

What only a model's class shows takes the toolchain `torch`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutations.catalogue import Mutation, Outcome
from tests.mutations.checkpoint_edits import linked
from tests.mutations.subjects import NotBuilt

from hallmark.lint import report, standalone
from hallmark.lint.findings import SUBJECTS
from hallmark.progress import heard_by


def errors(folder: Path, with_class: bool) -> list[str]:
    """The codes of the errors that lint finds, also those that refuse some formats alone; `with_class`: all of lint."""
    if with_class:
        found = standalone.lint(folder, remote_code=False, make=True)
    else:
        with heard_by(lambda *_: None):
            found = report.of_folder(folder, False, None, "not asked here")
    return refusals(found)


def refusals(found: Mapping[str, Any]) -> list[str]:
    """The codes of the errors in lint's result."""
    return sorted({finding["code"] for finding in found["findings"] if finding["level"] == "error"})


def needs_class(mutation: Mutation) -> bool:
    """Whether the headers and values cannot show it."""
    return bool(SUBJECTS["class"].keys() & set(mutation.caught_by))


def check(mutation: Mutation, folder: Path) -> list[str]:
    """The codes of the errors that lint finds in a copy of the checkpoint with the defect in it."""
    with tempfile.TemporaryDirectory(prefix="hallmark-mutation-") as scratch:
        copy = linked(folder, Path(scratch) / "copy")
        mutation.apply(copy)
        return errors(copy, needs_class(mutation))


def checkpoint_of(artifacts: Path, model: str) -> Path:
    """The folder of a model's weights in the store. Raises NotBuilt when there is none."""
    found = sorted(artifacts.glob(f"store/fetch/{model}/weights/*/files"))
    if not found:
        raise NotBuilt(f"{artifacts}/store/fetch/{model}: no checkpoint; build the demo there first")
    return found[-1]


def outcomes(chosen: Mapping[str, Sequence[Mutation]], artifacts: Path) -> Iterator[Outcome]:
    """What comes of the defects, by model (`chosen`): first of its checkpoint as it is, then of each."""
    for model, mutations in chosen.items():
        folder = checkpoint_of(artifacts, model)
        yield Outcome(None, model, tuple(errors(folder, with_class=True)))
        for mutation in mutations:
            yield Outcome(mutation, model, tuple(check(mutation, folder)))
