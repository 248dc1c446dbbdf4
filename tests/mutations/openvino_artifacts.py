"""Defects of an OpenVINO IR: constants, ports, states, the tokenizer's IR, settings of the runtime. Judges nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from tests.mutations.catalogue import Mutation
from tests.mutations.places import OPENVINO, constants, edit, replace

LANGUAGE, ENCODER = ("smollm2/openvino/int8",), ("minilm/openvino/int8",)
BOTH = (*LANGUAGE, *ENCODER)
TOKENIZER = "openvino_tokenizer.xml"


def frequencies(change: Any) -> Any:
    def apply(files: Path) -> None:
        found = [piece for constant, piece in constants(files) if "rotary_emb" in constant.name]
        for piece in found:
            piece.change(change)
        if not found:
            raise ValueError(f"{files}: no rotary frequencies")

    return apply


def epsilon(files: Path) -> None:
    """Another epsilon in all of the graph's norms."""
    found = [piece for constant, piece in constants(files) if constant.elements == 1]
    changed = [piece for piece in found if 0 < piece.read()[0] < 1e-4]
    for piece in changed:
        piece.write(np.float32([1e-2]))
    if not changed:
        text = (files / OPENVINO).read_text(encoding="utf-8")
        new, count = re.subn(r'eps="[^"]+"', 'eps="0.1"', text)
        if not count:
            raise ValueError(f"{files}: no epsilon")
        (files / OPENVINO).write_text(new, encoding="utf-8")


def bake(axis: int) -> Any:
    """The ports of the ids have the size 1 of the export at this axis."""

    def apply(files: Path) -> None:
        text = (files / OPENVINO).read_text(encoding="utf-8")
        start = text.index('name="input_ids" type="Parameter"')
        end = text.index("</layer>", start)
        layer = text[start:end]
        place = [found.start() for found in re.finditer("<dim>-1</dim>", layer)][axis]
        layer = layer[:place] + "<dim>1</dim>" + layer[place + len("<dim>-1</dim>") :]
        (files / OPENVINO).write_text(text[:start] + layer + text[end:], encoding="utf-8")

    return apply


def lose_states(files: Path) -> None:
    replace(files / OPENVINO, b'type="ReadValue"', b'type="ParmValue"')


def template(old: bytes, new: bytes) -> Any:
    return lambda files: replace(files / TOKENIZER, old, new)


def note(key: str, old: str, new: str) -> Any:
    """Another value of a note in the tokenizer."""
    return lambda files: replace(files / TOKENIZER, f'{key} value="{old}"'.encode(), f'{key} value="{new}"'.encode())


def swap_tokenizer_texts(files: Path) -> None:
    """The first two tokens of the tokenizer's own vocabulary swapped: it was made from another tokenizer.json."""
    replace(files / "openvino_tokenizer.bin", b" t ainhe", b" a tinhe", 1)


def runtime(**values: Any) -> Any:
    return lambda files: edit(files / "runtime.json", lambda content: content.update(values))


def cut_xml(files: Path) -> None:
    path = files / OPENVINO
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


MUTATIONS = (
    Mutation("rope frequencies of another base", "files", LANGUAGE, ("rope_mismatch",),
             frequencies(lambda values: np.power(10000.0, -np.arange(32) / 32))),
    Mutation("rope scaled though the source is not", "files", LANGUAGE, ("rope_mismatch",),
             frequencies(lambda values: values / 2)),
    Mutation("norm epsilon of another model, in the graph", "files", BOTH, ("config_mismatch",), epsilon,
             "ggml-org/llama.cpp#9310"),
    Mutation("batch baked into the ports", "files", BOTH, ("baked_axes",), bake(0), "pytorch/pytorch#122321"),
    Mutation("sequence baked into the ports", "files", BOTH, ("baked_axes",), bake(1), "pytorch/pytorch#122321"),
    Mutation("cache not inside the model", "files", LANGUAGE, ("stateful",), lose_states),
    Mutation("other chat template", "files", LANGUAGE, ("chat_template_mismatch",),
             template(b"|im_start|", b"|im_begin|"), "ggml-org/llama.cpp#7062"),
    Mutation("another EOS in the tokenizer", "files", LANGUAGE, ("special_token_mismatch",),
             note("eos_token_id", "2", "0")),
    Mutation("another BOS in the tokenizer", "files", LANGUAGE, ("special_token_mismatch",),
             note("bos_token_id", "1", "0")),
    Mutation("another padding in the tokenizer", "files", ENCODER, ("special_token_mismatch",),
             note("pad_token_id", "0", "5")),
    Mutation("a stale tokenizer, in its own IR", "files", LANGUAGE,
             ("vocabulary_mismatch", "tokenizer_other", "tokenizer_whitespace"), swap_tokenizer_texts,
             "openvinotoolkit/openvino_tokenizers#308"),
    Mutation("pooling by the first token", "files", ENCODER, ("config_mismatch", "cosine_mean"),
             runtime(pooling="cls")),
    Mutation("texts cut at 64 tokens", "files", ENCODER, ("config_mismatch", "length_cosine_min"),
             runtime(max_tokens=64)),
    Mutation("half a graph", "files", BOTH, ("refused",), cut_xml),
)  # fmt: skip
