"""Defects of a GGUF file's metadata: settings, vocabulary, special tokens, chat template. Judges nothing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from tests.mutations.catalogue import Mutation
from tests.mutations.places import GGUF, entry, header, lose, patch, set_number

BOTH = ("smollm2/gguf/q8_0", "minilm/gguf/q8_0")
LANGUAGE, ENCODER = BOTH[:1], BOTH[1:]
SETTINGS, SPECIAL, VOCABULARY = ("config_mismatch",), ("special_token_mismatch",), ("vocabulary_mismatch",)


def number(key: str, value: float) -> Any:
    return lambda files: set_number(files, key, value)


def without(key: str) -> Any:
    return lambda files: lose(files, key)


def swap_token_texts(files: Path) -> None:
    """Two tokens of the same length have changed places."""
    at, texts = entry(files, "tokenizer.ggml.tokens")[0] + 12, header(files).metadata["tokenizer.ggml.tokens"]
    sizes = [8 + len(text.encode()) for text in texts]
    first = 1000
    second = next(n for n in range(first + 1, len(texts)) if sizes[n] == sizes[first] and texts[n] != texts[first])
    places = [at + sum(sizes[:n]) for n in (first, second)]
    data = (files / GGUF).read_bytes()
    one, other = (data[place : place + sizes[first]] for place in places)
    patch(files / GGUF, places[0], other)
    patch(files / GGUF, places[1], one)


def shift_token_texts(files: Path) -> None:
    """Each text is at the place of the token before it."""
    at, texts = entry(files, "tokenizer.ggml.tokens")[0] + 12, header(files).metadata["tokenizer.ggml.tokens"]
    written = [struct.pack("<Q", len(text.encode())) + text.encode() for text in [*texts[1:], texts[0]]]
    patch(files / GGUF, at, b"".join(written))


def reverse_merges(files: Path) -> None:
    """The merges of another tokenizer: the same pairs in another order."""
    at, merges = entry(files, "tokenizer.ggml.merges")[0] + 12, header(files).metadata["tokenizer.ggml.merges"]
    written = [struct.pack("<Q", len(text.encode())) + text.encode() for text in reversed(merges)]
    patch(files / GGUF, at, b"".join(written))


def text(key: str, old: bytes, new: bytes) -> Any:
    """Replace a part of a text by one of the same length."""

    def apply(files: Path) -> None:
        at = entry(files, key)[0]
        data = (files / GGUF).read_bytes()
        place = data.index(old, at)
        patch(files / GGUF, place, new)

    return apply


MUTATIONS = (
    Mutation("rope base is the default's", "files", LANGUAGE, ("rope_mismatch",),
             number("{arch}.rope.freq_base", 10000.0)),
    Mutation("rope base left out", "files", LANGUAGE, ("rope_mismatch",), without("{arch}.rope.freq_base")),
    Mutation("norm epsilon of another model", "files", LANGUAGE, SETTINGS,
             number("{arch}.attention.layer_norm_rms_epsilon", 1e-6), "ggml-org/llama.cpp#9310"),
    Mutation("norm epsilon of another model", "files", ENCODER, SETTINGS,
             number("{arch}.attention.layer_norm_epsilon", 1e-5), "nomic-ai/gpt4all#1946"),
    Mutation("wrong head count", "files", BOTH, SETTINGS, number("{arch}.attention.head_count", 6)),
    Mutation("wrong number of key heads", "files", LANGUAGE, SETTINGS, number("{arch}.attention.head_count_kv", 9),
             "ggml-org/llama.cpp#2376"),
    Mutation("context length of another model", "files", BOTH, SETTINGS, number("{arch}.context_length", 256)),
    Mutation("a layer is not counted", "files", BOTH, ("config_mismatch", "surplus_tensors"),
             number("{arch}.block_count", 5)),
    Mutation("BOS added", "files", LANGUAGE, SPECIAL, number("tokenizer.ggml.add_bos_token", True),
             "ggml-org/llama.cpp#3966"),
    Mutation("BOS lost", "files", ENCODER, SPECIAL, number("tokenizer.ggml.add_bos_token", False),
             "ggml-org/llama.cpp#21500"),
    Mutation("another BOS", "files", BOTH, SPECIAL, number("tokenizer.ggml.bos_token_id", 3)),
    Mutation("another EOS", "files", BOTH, SPECIAL, number("tokenizer.ggml.eos_token_id", 0),
             "ggml-org/llama.cpp#6745"),
    Mutation("unknown token of another vocabulary", "files", BOTH, SPECIAL,
             number("tokenizer.ggml.unknown_token_id", 5)),
    Mutation("two tokens swapped", "files", BOTH, VOCABULARY, swap_token_texts),
    Mutation("token ids off by one", "files", BOTH, VOCABULARY, shift_token_texts),
    Mutation("merges of another tokenizer", "files", LANGUAGE, ("vocabulary_mismatch", "tokenizer_other"),
             reverse_merges),
    Mutation("pre-tokenizer of another model", "files", LANGUAGE,
             ("vocabulary_mismatch", "tokenizer_numerals", "tokenizer_other", "tokenizer_whitespace"),
             text("tokenizer.ggml.pre", b"smollm", b"falcon"), "ggml-org/llama.cpp#7476"),
    Mutation("pooling by the first token", "files", ENCODER, ("config_mismatch", "cosine_mean"),
             number("{arch}.pooling_type", 2)),
    Mutation("other chat template", "files", LANGUAGE, ("chat_template_mismatch",),
             text("tokenizer.chat_template", b"<|im_start|>", b"<|im_begin|>"), "ggml-org/llama.cpp#7062"),
    Mutation("chat template lost", "files", LANGUAGE, ("chat_template_mismatch",), without("tokenizer.chat_template"),
             "huggingface/transformers#32908"),
)  # fmt: skip
