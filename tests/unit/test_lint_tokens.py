"""Tokens, special tokens and token ids against the rows of the embedding."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cases.checkpoints import Parts, llama
from tests.unit.linted import found, lint, written

from hallmark import checkpoint
from hallmark.lint import tokens, vocabulary


def field(number: int, data: bytes) -> bytes:
    """A protobuf field of bytes."""
    length, size = len(data), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def sentencepiece(count: int) -> bytes:
    """A SentencePiece model of so many pieces, with a score and a type each, and a trainer's settings behind."""
    first = ["<unk>", "<s>", "</s>"]
    pieces = [*first, *(f"▁{number}" * 20 for number in range(count - len(first)))]
    score = b"\x15" + struct.pack("<f", -1.5) + b"\x18\x01"
    return b"".join(field(1, field(1, piece.encode()) + score) for piece in pieces) + field(2, b"\x18\x02")


def with_model(count: int) -> Callable[[Parts], object]:
    """tokenizer.model in place of tokenizer.json."""

    def change(made: Parts) -> None:
        del made.documents["tokenizer.json"]
        made.documents["tokenizer_config.json"]["tokenizer_class"] = "LlamaTokenizer"
        made.files["tokenizer.model"] = sentencepiece(count)

    return change


def test_the_pieces_of_a_sentencepiece_model_are_counted(tmp_path: Path) -> None:
    assert found(written(tmp_path, with_model(512))) == []
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece(600))
    ((code, place),) = found(tmp_path)
    assert (code, place) == ("tokens_beyond_rows", "tokenizer.model")
    assert "600 tokens, 512 rows in model.embed_tokens.weight" in lint(tmp_path)[0].message


@pytest.mark.parametrize(
    "content",
    [b"version https://git-lfs.github.com/spec/v1\n", b"", sentencepiece(9)[:-30], b"\x0a\xff\xff\xff\xff\x0f", b"{}"],
)
def test_a_tokenizer_model_that_is_something_else(tmp_path: Path, content: bytes) -> None:
    """Git LFS pointers come in place of it, too."""
    written(tmp_path, with_model(9))
    (tmp_path / "tokenizer.model").write_bytes(content)
    assert ("bad_tokenizer", "tokenizer.model") in found(tmp_path)


def test_a_tokenizer_json_without_a_vocabulary(tmp_path: Path) -> None:
    written(tmp_path, lambda made: made.documents["tokenizer.json"].pop("model"))
    assert ("bad_tokenizer", "tokenizer.json") in found(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.txt", "\n".join(["[PAD]", *map(str, range(600))])),
        ("vocab.json", json.dumps({str(number): number for number in range(601)})),
        ("tekken.json", json.dumps({"config": {"default_vocab_size": 601}})),
        ("tokenizer.json", json.dumps({"model": {"vocab": [[str(number), -1.0] for number in range(601)]}})),
        ("tokenizer.json", json.dumps({"model": {"vocab": {"a": 0, "b": 600}}})),
    ],
)
def test_every_kind_of_vocabulary_is_counted(tmp_path: Path, name: str, content: str) -> None:
    written(tmp_path, lambda made: made.documents.clear())
    (tmp_path / name).write_text(content, encoding="utf-8")
    if name == "vocab.json":
        (tmp_path / "merges.txt").write_text("")
    assert found(tmp_path) == [("tokens_beyond_rows", name)]
    assert "601 tokens" in lint(tmp_path)[0].message


def test_a_vocab_json_alone_is_no_tokenizer(tmp_path: Path) -> None:
    written(tmp_path, lambda made: made.documents.clear())
    (tmp_path / "vocab.json").write_text("{}")
    assert found(tmp_path) == [("no_tokenizer", "tokenizer.json")]


def add(token: str, number: int, role: str = "") -> Callable[[Parts], object]:
    def change(made: Parts) -> None:
        made.documents["tokenizer.json"]["added_tokens"].append({"id": number, "content": token, "special": True})
        if role:
            made.documents["tokenizer_config.json"][f"{role}_token"] = {"content": token}

    return change


def test_a_padding_token_added_without_a_row(tmp_path: Path) -> None:
    """Fine-tunes that added [PAD] and did not resize (ggml-org/llama.cpp#3442, OpenNMT/CTranslate2#1415)."""
    assert found(written(tmp_path, add("[PAD]", 512, "pad"))) == [("special_token_beyond_rows", "tokenizer.json")]
    assert "'[PAD]' has id 512, model.embed_tokens.weight has 512 rows" in lint(tmp_path)[0].message


def test_an_added_token_that_nothing_uses_is_a_warning(tmp_path: Path) -> None:
    """Gemma 3 without its image part has such a token."""
    (finding,) = lint(written(tmp_path, add("<image>", 512)))
    assert (finding.code, finding.level) == ("added_token_beyond_rows", "warning")


def test_added_tokens_in_the_older_file(tmp_path: Path) -> None:
    change = with_model(512)

    def more(made: Parts) -> None:
        change(made)
        made.documents["added_tokens.json"] = {"<pad>": 512}
        made.documents["tokenizer_config.json"]["pad_token"] = "<pad>"

    assert found(written(tmp_path, more)) == [("special_token_beyond_rows", "added_tokens.json")]


@pytest.mark.parametrize(
    ("rows", "code"),
    [(512, "special_token_beyond_rows"), (513, "special_token_unknown"), (520, "special_token_unknown")],
)
def test_a_special_token_that_is_in_no_vocabulary(tmp_path: Path, rows: int, code: str) -> None:
    """transformers adds it behind the vocabulary when it loads the tokenizer."""

    def change(made: Parts) -> None:
        made.tensors, made.config["vocab_size"] = llama(rows), rows
        made.documents["tokenizer_config.json"]["pad_token"] = "[PAD]"

    assert found(written(tmp_path, change)) == [(code, "tokenizer_config.json")]
    assert "gets id 512" in lint(tmp_path)[0].message


def test_classes_that_add_tokens_of_their_own_to_a_model_are_not_accused(tmp_path: Path) -> None:
    """XLM-RoBERTa's <pad> and <mask> are not among the pieces."""

    def change(made: Parts) -> None:
        made.files["sentencepiece.bpe.model"] = sentencepiece(510)
        made.documents = {"tokenizer_config.json": {"pad_token": "<pad>", "mask_token": "<mask>"}}

    assert found(written(tmp_path, change)) == []


def test_generation_that_stops_at_another_token_than_the_tokenizers(tmp_path: Path) -> None:
    """Chat models whose answers do not end: the tokenizer's end token is in neither config."""

    def change(made: Parts) -> None:
        made.documents["tokenizer_config.json"]["eos_token"] = "<s>"

    (finding,) = lint(written(tmp_path, change))
    assert (finding.code, finding.level) == ("stop_token_differs", "warning")
    assert "'<s>' has id 1, generation stops at 2" in finding.message
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    assert found(tmp_path) == []


def test_files_that_disagree_about_an_added_token(tmp_path: Path) -> None:
    """An added_tokens.json left from another tokenizer (ggml-org/llama.cpp#3583)."""

    def change(made: Parts) -> None:
        add("<x>", 500)(made)
        made.documents["added_tokens.json"] = {"<x>": 501, "<y>": 500}

    findings = lint(written(tmp_path, change))
    assert [finding.code for finding in findings] == ["token_ids_conflict", "token_ids_conflict"]
    assert "500 in tokenizer.json; 501 in added_tokens.json" in findings[0].message
    assert "'<x>' in tokenizer.json; '<y>' in added_tokens.json" in findings[1].message


@pytest.mark.parametrize(
    "name",
    ["transformer.wte.weight", "gpt_neox.embed_in.weight", "bert.embeddings.word_embeddings.weight", "shared.weight",
     "word_embeddings.weight", "transformer.word_embeddings.weight", "backbone.embeddings.weight",
     "model.language_model.embed_tokens.weight"],
)  # fmt: skip
def test_the_embedding_of_other_architectures_is_found(tmp_path: Path, name: str) -> None:
    def change(made: Parts) -> None:
        made.tensors = {name: made.tensors["model.embed_tokens.weight"]}
        made.config["vocab_size"] = 7

    written(tmp_path, change)
    assert tokens.embedding(checkpoint.of_folder(tmp_path)) == (name, 512)


def test_without_a_known_embedding_the_config_counts(tmp_path: Path) -> None:
    written(tmp_path, lambda made: made.tensors.pop("model.embed_tokens.weight"))
    assert tokens.embedding(checkpoint.of_folder(tmp_path)) == ("vocab_size of config.json", 512)


def test_files_of_other_shapes_are_read_without_failing(tmp_path: Path) -> None:
    def documents(made: Parts) -> None:
        odd: Any = {"added_tokens": 5, "model": {"vocab": {"a": "b"}}}
        made.documents |= {"tokenizer.json": odd, "added_tokens.json": {"x": "y"}}
        made.documents["tokenizer_config.json"] = {"added_tokens_decoder": [1], "eos_token": 5, "auto_map": 3}

    written(tmp_path, documents)
    assert found(tmp_path) == []
    assert vocabulary.added(checkpoint.of_folder(tmp_path)) == {}


def with_list(change: Callable[[list[str]], object]) -> Callable[[Parts], object]:
    """A vocab.txt beside tokenizer.json, of the same tokens in their order, changed."""

    def more(made: Parts) -> None:
        ids = made.documents["tokenizer.json"]["model"]["vocab"]
        tokens = sorted(ids, key=ids.__getitem__)
        change(tokens)
        made.files["vocab.txt"] = "\n".join(tokens).encode()

    return more


def test_two_files_of_one_vocabulary_have_to_agree(tmp_path: Path) -> None:
    assert found(written(tmp_path / "same", with_list(lambda tokens: None))) == []
    shorter = written(tmp_path / "shorter", with_list(lambda tokens: tokens.pop()))
    assert found(shorter) == [("vocabularies_differ", "vocab.txt")]
    moved = written(tmp_path / "moved", with_list(lambda tokens: tokens.insert(3, tokens.pop(5))))
    assert found(moved) == [("vocabularies_differ", "vocab.txt")]
    assert "0 tokens are not in both it and tokenizer.json, 3 have other ids" in lint(moved)[0].message


def test_a_token_may_hold_what_is_an_end_of_line_elsewhere(tmp_path: Path) -> None:
    """U+2028 and U+0085 are tokens of multilingual vocabularies."""

    def more(made: Parts) -> None:
        made.documents.clear()
        made.files["vocab.txt"] = "\r\n".join(["[PAD]", "\u2028", "a\u0085b"]).encode()

    read = vocabulary.read(checkpoint.of_folder(written(tmp_path, more)), "vocab.txt")
    assert dict(read.ids) == {"[PAD]": 0, "\u2028": 1, "a\u0085b": 2}


def test_merges_that_make_a_token_which_is_not_listed(tmp_path: Path) -> None:
    """The tokenizers library refuses such a file, with "Token out of vocabulary"."""

    def cut(made: Parts) -> None:
        ids = made.documents["tokenizer.json"]["model"]["vocab"]
        del ids[max(ids, key=ids.__getitem__)]

    assert found(written(tmp_path, cut)) == [("bad_tokenizer", "tokenizer.json")]
    assert "which it does not list" in lint(tmp_path)[0].message


@pytest.mark.parametrize(("prefix", "second", "expected"), [("##", "##b", []), (None, "##b", ["bad_tokenizer"])])
def test_a_prefix_of_continued_words_goes_when_tokens_are_merged(
    tmp_path: Path, prefix: str | None, second: str, expected: list[str]
) -> None:
    model = {"type": "BPE", "continuing_subword_prefix": prefix, "merges": [f"a {second}"]}
    model["vocab"] = {"a": 0, "##b": 1, "ab": 2}
    content = {"model": model, "added_tokens": []}
    written(tmp_path, lambda made: made.documents.update({"tokenizer.json": content, "tokenizer_config.json": {}}))
    assert [code for code, _ in found(tmp_path)] == expected
