"""Lint: config.json, generation_config.json and the code that a checkpoint may bring. Looks at no tensors' names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hallmark.checkpoint import CONFIG, Checkpoint
from hallmark.lint.findings import REMOTE_CODE, ROPE, Finding, found

GENERATION, TOKENIZER_CONFIG = "generation_config.json", "tokenizer_config.json"
DOCUMENTS = (
    CONFIG, GENERATION, TOKENIZER_CONFIG, "tokenizer.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "model.safetensors.index.json", "adapter_config.json",
)  # fmt: skip
# What transformers 5.5.4 can compute, beside "default"; a test compares this with the toolchain.
ROPE_TYPES = frozenset({"linear", "dynamic", "yarn", "longrope", "llama3", "proportional"})


def documents(checkpoint: Checkpoint) -> Iterator[Finding]:
    for name in DOCUMENTS:
        checkpoint.json(name)
        if name in checkpoint.unreadable:
            yield found("not_json", name, checkpoint.unreadable[name])


def architecture(checkpoint: Checkpoint) -> Iterator[Finding]:
    if CONFIG not in checkpoint.files:
        yield found("no_config", CONFIG, "missing")
    elif CONFIG not in checkpoint.unreadable and not checkpoint.config.get("architectures"):
        yield found("no_architecture", CONFIG, "names no architecture")


def rope(checkpoint: Checkpoint) -> Iterator[Finding]:
    for name in checkpoint.rope_types:
        if name in ROPE_TYPES:
            what = f"rotary scaling {name!r}, which not every format carries"
            yield found("rope_not_carried", CONFIG, what, trait=f"{ROPE}{name}")
        else:
            what = f"rotary scaling {name!r}; transformers has {', '.join(sorted(ROPE_TYPES))}"
            yield found("unknown_rope", CONFIG, what)


def references(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """The code that the checkpoint's `auto_map`s ask for (`modeling_x.Model`), by the file that asks."""
    found_in: dict[str, list[str]] = {}
    for name in (CONFIG, TOKENIZER_CONFIG):
        asked: list[Any] = []
        mapping = checkpoint.json(name).get("auto_map")
        for value in mapping.values() if isinstance(mapping, dict) else [mapping]:
            asked += value if isinstance(value, list | tuple) else [value]
        if texts := [text for text in asked if isinstance(text, str)]:
            found_in[name] = texts
    return found_in


def remote_code(checkpoint: Checkpoint, allowed: bool) -> Iterator[Finding]:
    asked = references(checkpoint)
    for place, texts in asked.items():
        if not allowed:
            yield found("remote_code", place, f"asks for code of its own: {', '.join(sorted(set(texts)))}")
            continue
        for text in sorted(set(texts)):
            repository, _, inside = text.rpartition("--")
            file = f"{inside.rpartition('.')[0]}.py"
            if repository:
                yield found("remote_code_elsewhere", place, f"{inside} is in {repository}")
            elif file not in checkpoint.files:
                yield found("remote_code_missing", file, f"missing, and {place} asks for {text}")
    if allowed and asked:
        place = next(iter(asked))
        yield found("remote_code_not_run", place, "asks for code that some exporters do not run", trait=REMOTE_CODE)


CHECKS = (documents, architecture, rope)
