"""Reads what tokens a checkpoint's tokenizer files have, with their ids. Tokenizes nothing and judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hallmark.checkpoint import Checkpoint

SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
FILES = ("tokenizer.json", *SENTENCEPIECE, "vocab.json", "vocab.txt", "tekken.json")
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's ways to write a field


class BadVocabulary(ValueError):
    """A tokenizer file is not what its name says."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of one file: text -> id; and how many ids it takes, which is more where it does not list them all."""

    file: str
    ids: Mapping[str, int]
    size: int


def read(checkpoint: Checkpoint, name: str) -> Vocabulary:
    """The vocabulary in one of FILES, without added tokens. Raises BadVocabulary."""
    if name in SENTENCEPIECE:
        pieces = list(pieces_of(checkpoint.bytes(name)))
        if not pieces:
            raise BadVocabulary("it holds no SentencePiece model")
        return _vocabulary(name, {piece: number for number, piece in enumerate(pieces)}, len(pieces))
    if name == "vocab.txt":
        try:
            lines = lines_of(checkpoint.bytes(name).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise BadVocabulary(f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None
        return _vocabulary(name, {token: number for number, token in enumerate(lines)}, len(lines))
    content = checkpoint.json(name)
    if name in checkpoint.unreadable:
        return Vocabulary(name, {}, 0)  # which is said of every JSON file
    if name == "tekken.json":
        settings = content.get("config")
        return Vocabulary(name, {}, int((settings if isinstance(settings, dict) else {}).get("default_vocab_size", 0)))
    model: Any = content.get("model") if name == "tokenizer.json" else {"vocab": content}
    listed = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(listed, dict | list) or not listed:
        raise BadVocabulary("it holds no vocabulary")
    if name == "tokenizer.json" and isinstance(listed, dict):
        _check_merges(listed, model)
    return _vocabulary(name, dict(_ids(listed)), len(listed))


def lines_of(text: str) -> list[str]:
    """The lines as Python's text files have them: a token may hold characters that `str.splitlines` takes for ends."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _check_merges(listed: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Raise BadVocabulary for a merge of BPE that makes a token which is not listed; tokenizers refuses such a file.

    A merge is "a b" or ["a", "b"]; `continuing_subword_prefix` of the second part goes (tokenizers, models/bpe).
    """
    merges, prefix = model.get("merges"), model.get("continuing_subword_prefix") or ""
    for merge in merges if isinstance(merges, list) else ():
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            continue
        made = parts[0] + parts[1].removeprefix(prefix)
        if lost := [token for token in (*parts, made) if token not in listed]:
            raise BadVocabulary(f"its merge of {parts[0]!r} and {parts[1]!r} needs {lost[0]!r}, which it does not list")


def _ids(listed: dict[str, Any] | list[Any]) -> Iterator[tuple[str, int]]:
    """A mapping as it is; Unigram's list of [piece, score] by position."""
    if isinstance(listed, dict):
        yield from ((token, number) for token, number in listed.items() if isinstance(number, int))
    else:
        yield from ((str(item[0]), number) for number, item in enumerate(listed) if isinstance(item, list) and item)


def _vocabulary(name: str, ids: Mapping[str, int], count: int) -> Vocabulary:
    return Vocabulary(name, ids, max(count, 1 + max(ids.values(), default=-1)))


def added(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Added tokens by the file that lists them: text -> id."""
    found: dict[str, dict[str, int]] = {}
    listed = checkpoint.json("tokenizer.json").get("added_tokens")
    found["tokenizer.json"] = {
        str(item["content"]): item["id"]
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, dict) and isinstance(item.get("id"), int) and "content" in item
    }
    found["added_tokens.json"] = {
        token: number for token, number in checkpoint.json("added_tokens.json").items() if isinstance(number, int)
    }
    decoder = checkpoint.json("tokenizer_config.json").get("added_tokens_decoder")
    found["tokenizer_config.json"] = {
        text_of(item): int(number)
        for number, item in (decoder.items() if isinstance(decoder, dict) else ())
        if number.isdigit() and text_of(item)
    }
    return {name: tokens for name, tokens in found.items() if tokens}


def roles(checkpoint: Checkpoint) -> dict[str, str]:
    """The text of each special token by its role (`eos`)."""
    settings = {**checkpoint.json("special_tokens_map.json"), **checkpoint.json("tokenizer_config.json")}
    return {role: text for role in ROLES if (text := text_of(settings.get(f"{role}_token")))}


def text_of(token: Any) -> str:
    """A token's text, written plainly or as an object with `content`; '' for none."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def pieces_of(model: bytes) -> Iterator[str]:
    """The pieces of a SentencePiece model in order: field 1 of ModelProto, and of each of these field 1.

    Numbers as in sentencepiece_model.proto. Raises BadVocabulary when it is no protobuf message.
    """
    for number, value in _fields(model):
        if number == 1 and isinstance(value, bytes):
            piece = next((inner for field, inner in _fields(value) if field == 1), b"")
            try:
                yield bytes(piece).decode("utf-8") if isinstance(piece, bytes) else ""
            except UnicodeDecodeError:
                raise BadVocabulary("it is no SentencePiece model: a piece is not UTF-8 text") from None


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field of a protobuf message; bytes, but for numbers of variable length."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, position = _varint(message, position)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise BadVocabulary(f"it is no SentencePiece model: byte {position} begins no field")
        if position + size > len(message):
            raise BadVocabulary("it is no SentencePiece model, or is cut off")
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 64:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
    raise BadVocabulary("it is no SentencePiece model, or is cut off")
