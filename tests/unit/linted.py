"""What tests of lint share: a small checkpoint with a change in it, and what its headers and small files show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.cases.checkpoints import Parts, parts, write

from hallmark import checkpoint
from hallmark.lint import report
from hallmark.lint.findings import Finding
from hallmark.progress import heard_by

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
ASK_CLASS = """
import json, sys
from pathlib import Path
from hallmark.lint.model_class import compare
from transformers import AutoTokenizer

answers = {}
for folder in map(Path, sys.argv[2:]):
    answers[folder.name] = compare({"source": folder}, {})
    if (folder / "tokenizer_config.json").exists():
        ids = AutoTokenizer.from_pretrained(folder)("The rain in Spain")["input_ids"]
        assert len(ids) > 3, folder
Path(sys.argv[1]).write_text(json.dumps(answers))
"""


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


def class_answers(python: Path, scratch: Path, folders: Iterable[Path]) -> dict[str, Any]:
    """What each checkpoint's class says of its tensors, by the folder's name; one process of the toolchain for all."""
    out = scratch / "answers.json"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "HF_HUB_OFFLINE": "1"}
    command = [str(python), "-c", ASK_CLASS, str(out), *map(str, folders)]
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    content: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return content


def lint_with(folder: Path, answer: dict[str, Any] | None = None) -> dict[str, Any]:
    """All that lint says of a folder, with what its class answered."""
    with heard_by(lambda *_: None):
        return report.of_folder(folder, False, (lambda: answer) if answer else None, "not asked here")
