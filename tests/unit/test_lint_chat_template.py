"""Chat templates that cannot be parsed, wherever a checkpoint keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cases.checkpoints import parts, write

from hallmark import checkpoint
from hallmark.lint import report

SOUND = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
BROKEN = "\n{% for m in messages %}{{ m.content }}"


def found(folder: Path, documents: dict[str, Any], files: dict[str, bytes]) -> list[tuple[str, str]]:
    made = parts()
    for name, content in documents.items():
        made.documents[name] = made.documents.get(name, {}) | content
    write(folder, made)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return [(finding.code, finding.place) for finding in report.of_headers(checkpoint.of_folder(folder))]


PLACES: list[tuple[str, Any]] = [
    ("chat_template.jinja", None),
    ("additional_chat_templates/tool_use.jinja", None),
    ("tokenizer_config.json", lambda text: {"chat_template": text}),
    ("tokenizer_config.json", lambda text: {"chat_template": [{"name": "default", "template": text}]}),
    ("chat_template.json", lambda text: {"chat_template": text}),
]


@pytest.mark.parametrize(("name", "around"), PLACES)
def test_a_template_has_to_be_jinja(tmp_path: Path, name: str, around: Any) -> None:
    """`generation`, `break` and `continue` are what transformers adds to it."""
    for text, expected in ((SOUND, []), (BROKEN, [("bad_chat_template", name)])):
        documents = {name: around(text)} if around else {}
        assert found(tmp_path / str(len(text)), documents, {} if around else {name: text.encode()}) == expected


def test_the_line_is_told_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    found(tmp_path, {}, {"chat_template.jinja": BROKEN.encode()})
    (finding,) = report.of_headers(checkpoint.of_folder(tmp_path))
    assert "line 2 of the template" in finding.message
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe{")
    (finding,) = report.of_headers(checkpoint.of_folder(tmp_path))
    assert (finding.code, "not UTF-8" in finding.message) == ("bad_chat_template", True)
