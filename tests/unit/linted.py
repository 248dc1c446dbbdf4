"""What tests of lint share: a small checkpoint with a change in it, and what its headers and small files show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cases.checkpoints import Parts, parts, write

from hallmark import checkpoint
from hallmark.lint import report
from hallmark.lint.findings import Finding


def lint(folder: Path) -> list[Finding]:
    return report.of_headers(checkpoint.of_folder(folder))


def found(folder: Path) -> list[tuple[str, str]]:
    """Code and place of each finding."""
    return [(finding.code, finding.place) for finding in lint(folder)]


def written(folder: Path, change: Callable[[Parts], object] = lambda made: None) -> Path:
    """The folder, with the checkpoint in it."""
    made = parts()
    change(made)
    write(folder, made)
    return folder
