"""Lint: the chat templates, which must be Jinja that can be parsed. Renders none of them."""

from __future__ import annotations

from collections.abc import Iterator

from hallmark import chat
from hallmark.checkpoint import Checkpoint
from hallmark.lint.findings import Finding, found
from hallmark.lint.settings import TOKENIZER_CONFIG

FILE, OLDER = "chat_template.jinja", "chat_template.json"


def templates(checkpoint: Checkpoint) -> Iterator[tuple[str, str | bytes]]:
    """(file, text) of each template; bytes of a file of its own, which may not be text."""
    for name in sorted(checkpoint.files):
        if name == FILE or (name.startswith("additional_chat_templates/") and name.endswith(".jinja")):
            yield name, checkpoint.bytes(name)
    for name in (TOKENIZER_CONFIG, OLDER):
        listed = checkpoint.json(name).get("chat_template")
        for item in listed if isinstance(listed, list) else [listed]:
            text = item.get("template") if isinstance(item, dict) else item  # {"name": "tool_use", "template": ...}
            if isinstance(text, str):
                yield name, text


def check(checkpoint: Checkpoint) -> Iterator[Finding]:
    from jinja2 import TemplateSyntaxError

    environment = chat.environment()
    for name, text in templates(checkpoint):
        try:
            environment.parse(text.decode("utf-8") if isinstance(text, bytes) else text)
        except TemplateSyntaxError as error:
            yield found("bad_chat_template", name, f"line {error.lineno} of the template: {error.message}")
        except UnicodeDecodeError as error:
            yield found("bad_chat_template", name, f"it is not UTF-8 text ({error.reason} at byte {error.start})")
