"""Tries every seeded defect of stage `source` on checkpoints, and shows what lint says. Judges no artifact.

    python -m tests.mutations.lint_run --artifacts FOLDER [--only PATTERN]

FOLDER is a built checkout's `artifacts`. The unspoiled checkpoints come first and must have no error. Exits 1 when one
of them has, or when a defect is not caught. What only a model's class shows takes the toolchain `torch`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from tests.mutations import sources
from tests.mutations.catalogue import Mutation
from tests.mutations.checkpoint_edits import linked

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
    """The folder of a model's weights in the store. Raises SystemExit when there is none."""
    found = sorted(artifacts.glob(f"store/fetch/{model}/weights/*/files"))
    if not found:
        raise SystemExit(f"{artifacts}/store/fetch/{model}: no checkpoint; build the demo there first")
    return found[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--artifacts", type=Path, required=True, help="the folder artifacts of a built checkout")
    parser.add_argument("--only", default="*", help="names of defects, with * and ?")
    asked = parser.parse_args()
    chosen = [mutation for mutation in sources.MUTATIONS if fnmatch(mutation.name, asked.only)]
    print("| defect | model | found | wanted | |\n|---|---|---|---|---|", flush=True)
    missed = tried = 0
    for model in sources.source_weights.BOTH:
        folder = checkpoint_of(asked.artifacts, model)
        found = errors(folder, with_class=True)
        missed += bool(found)
        print(f"| none | {model} | {', '.join(found)} | | {'NOT sound' if found else 'sound'} |", flush=True)
        for mutation in chosen:
            if model in mutation.subjects:
                found = check(mutation, folder)
                caught = bool(set(found) & set(mutation.caught_by))
                missed, tried = missed + (not caught), tried + 1
                wanted = " or ".join(mutation.caught_by)
                word = "caught" if caught else "NOT"
                print(f"| {mutation.name} | {model} | {', '.join(found)} | {wanted} | {word} |", flush=True)
    print(f"\n{tried} defects tried, {missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
