"""What a checkpoint's files say of its tokens: texts, special ids, stop tokens, chat template. Encodes nothing.

For checkpoints and for artifacts that carry the same files. Where two files disagree, both answers are kept: which one
counts is each reader's choice, and an artifact may follow either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROLES = ("bos", "eos", "unk", "pad", "cls", "sep", "mask")
STAND_INS = {"bos": "cls", "eos": "sep"}  # an encoder's first and last token, where it names no bos and eos
CONFIGS = ("generation_config.json", "config.json")
CONTROL, UNKNOWN = 3, 2  # types of pieces in SentencePiece's sentencepiece_model.proto
SPECIAL_PROCESSORS = ("BertProcessing", "RobertaProcessing")


@dataclass(frozen=True)
class Tokens:
    """`texts` by id, `special` and `added` ids, ids by `role`, ids that end an answer, what is put around a text.

    `adds` has `bos` and `eos`: True, False, or None where the files do not say or contradict one another. `template` is
    '' where there is none. `merges` are those of BPE in their order, two texts with a space between.
    """

    texts: Mapping[int, str] = field(default_factory=dict)
    special: frozenset[int] = frozenset()
    added: frozenset[int] = frozenset()
    roles: Mapping[str, frozenset[int]] = field(default_factory=dict)
    stops: frozenset[int] = frozenset()
    adds: Mapping[str, bool | None] = field(default_factory=dict)
    template: str = ""
    merges: tuple[str, ...] = ()


def read(folder: Path) -> Tokens:
    """Read the tokenizer's and the generation's files in a folder; what is not there is left empty."""
    content, config = read_json(folder / "tokenizer.json"), read_json(folder / "tokenizer_config.json")
    texts, special, added = _texts(folder, content)
    ids = {text: number for number, text in texts.items()}
    settings = [read_json(folder / name) for name in CONFIGS]
    roles = _roles(config, settings, ids)
    stops = frozenset(number for found in settings for number in as_list(found.get("eos_token_id")))
    template = chat_template(folder, config)
    has_model = (folder / "tokenizer.model").is_file()
    return Tokens(
        texts,
        special,
        added,
        roles,
        stops | roles.get("eos", frozenset()),
        _adds(content, config, has_model),
        template,
        tuple(
            merge if isinstance(merge, str) else " ".join(merge) for merge in content.get("model", {}).get("merges", ())
        ),
    )


def merge_differences(found: tuple[str, ...], source: tuple[str, ...]) -> list[str]:
    """A line where the merges are not the source's; none where one of the two has none."""
    if not found or not source or found == source:
        return []
    moved = sum(one != other for one, other in zip(found, source, strict=False)) + abs(len(found) - len(source))
    return [f"{moved} of {len(source)} merges are not the source's"]


def read_json(path: Path) -> dict[str, Any]:
    """The file's content; empty where there is no such file or no JSON object in it."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def as_list(value: Any) -> list[int]:
    """`eos_token_id` as a list: it may be missing, a number or a list."""
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _texts(folder: Path, content: Mapping[str, Any]) -> tuple[dict[int, str], frozenset[int], frozenset[int]]:
    """Texts by id, and the ids of special and of added tokens."""
    vocabulary = content.get("model", {}).get("vocab")
    special: set[int] = set()
    if isinstance(vocabulary, dict):
        texts = {number: text for text, number in vocabulary.items()}
    elif isinstance(vocabulary, list):  # Unigram: pairs of piece and score
        texts = {number: entry[0] for number, entry in enumerate(vocabulary)}
    elif (folder / "tokenizer.model").is_file():
        pieces = list(_pieces((folder / "tokenizer.model").read_bytes()))
        texts = {number: text for number, (text, _) in enumerate(pieces)}
        special |= {number for number, (_, kind) in enumerate(pieces) if kind in (CONTROL, UNKNOWN)}
    elif (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        texts = {number: line for number, line in enumerate(lines) if line}
    else:
        texts = {number: text for text, number in read_json(folder / "vocab.json").items()}
    added = content.get("added_tokens") or []
    texts |= {token["id"]: token["content"] for token in added}
    special |= {token["id"] for token in added if token["special"]}
    return texts, frozenset(special), frozenset(token["id"] for token in added)


def _pieces(data: bytes) -> Iterator[tuple[str, int]]:
    """Pieces and their types in a SentencePiece model: field 1 of the message, in it text (1) and type (3)."""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            parts = dict(_fields(value))
            text = parts.get(1, b"")
            yield text.decode("utf-8", "replace") if isinstance(text, bytes) else "", int(parts.get(3, 1))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of a protobuf message: varints as int, fixed numbers and texts as bytes."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield tag >> 3, data[position : position + size]
        position += size


def _roles(
    config: Mapping[str, Any], settings: list[dict[str, Any]], ids: Mapping[str, int]
) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for role in ROLES:
        token = config.get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        named = {ids[text]} if isinstance(text, str) and text in ids else set()
        stated = {number for values in settings for number in as_list(values.get(f"{role}_token_id"))}
        found[role] = named | stated
    for role, other in STAND_INS.items():
        found[role] = found[role] or found[other]
    return {role: frozenset(numbers) for role, numbers in found.items() if numbers}


def _adds(content: Mapping[str, Any], config: Mapping[str, Any], has_model: bool) -> dict[str, bool | None]:
    """Whether a token is put before and after a text: by the post-processor and by `add_bos_token`, if they agree."""
    if content:
        processed = _processed(content.get("post_processor") or {})
    else:
        processed = {"bos": True, "eos": False} if has_model else {}  # as SentencePiece's users do
    adds: dict[str, bool | None] = {}
    for role in ("bos", "eos"):
        stated = config.get(f"add_{role}_token")
        if not content and stated is not None:
            adds[role] = bool(stated)
        else:
            by_file = processed.get(role)
            adds[role] = by_file if stated in (None, by_file) else None
    return adds


def _processed(processor: Mapping[str, Any]) -> dict[str, bool]:
    steps = processor.get("processors") or [processor]
    adds = {"bos": False, "eos": False}
    for step in steps:
        if step.get("type") in SPECIAL_PROCESSORS:
            adds = {"bos": True, "eos": True}
        elif step.get("type") == "TemplateProcessing" and step.get("single"):
            adds = {"bos": "SpecialToken" in step["single"][0], "eos": "SpecialToken" in step["single"][-1]}
    return adds


def chat_template(folder: Path, config: Mapping[str, Any]) -> str:
    """The default chat template's text, from the file that transformers prefers; '' where there is none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = read_json(folder / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(found, list):
        found = next((entry["template"] for entry in found if entry.get("name") == "default"), "")
    return found if isinstance(found, str) else ""
