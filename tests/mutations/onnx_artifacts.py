"""Defects of an ONNX graph: tables, ports, operator sets, data files, settings of its runtime. Judges nothing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from tests.mutations.catalogue import Mutation
from tests.mutations.places import ONNX, edit, replace, tensors

GENAI, EXPORTED, ENCODER = ("smollm2/onnx/int8",), ("smollm2/onnx/fp32",), ("minilm/onnx/fp32",)
BOTH = (*GENAI, *ENCODER)
SETTINGS = ("config_mismatch",)
ROPE = ("rope_mismatch",)


def tables(change: Any, *names: str) -> Any:
    """Change the rotary tables, or those of some names."""

    def apply(files: Path) -> None:
        for tensor, piece in tensors(files):
            if tensor.name in (names or ("cos_cache", "sin_cache")):
                piece.change(lambda values, shape=tensor.dims: change(values.reshape(shape)).ravel())

    return apply


def other_base(files: Path) -> None:
    angles = np.outer(np.arange(8192), 10000.0 ** (-np.arange(0, 64, 2) / 64))
    for tensor, piece in tensors(files):
        if tensor.name in ("cos_cache", "sin_cache"):
            piece.write((np.cos if tensor.name[0] == "c" else np.sin)(angles).ravel())


def end_early(values: Any) -> Any:
    values[2048:] = values[2047]
    return values


def frequencies(change: Any) -> Any:
    """Change the frequencies that an exported graph computes its positions from."""

    def apply(files: Path) -> None:
        found = [p for t, p in tensors(files) if t.elements == 32 and np.all(np.diff(p.read()) < 0)]
        if not found:
            raise ValueError(f"{files}: no rotary frequencies")
        for piece in found:
            piece.change(change)

    return apply


def bake(name: str) -> Any:
    """Every dimension of this name has the size 1 of the export."""

    def apply(files: Path) -> None:
        old = b"\x12" + bytes([len(name)]) + name.encode()
        first = max(2, len(old) - 11) if len(old) > 11 else 0
        new = _one(first) + _one(len(old) - first) if first else _one(len(old))
        path = files / ONNX
        data = path.read_bytes()
        mark = b"\x0a" + bytes([len(old)])
        if mark + old not in data:
            raise ValueError(f"{path}: no dimension {name}")
        path.write_bytes(data.replace(mark + old, mark + new))

    return apply


def _one(size: int) -> bytes:
    """`dim_value: 1` of a dimension in so many bytes: a number may have more bytes than it needs."""
    return b"\x08" + (b"\x01" if size == 2 else b"\x81" + b"\x80" * (size - 3) + b"\x00")


def old_opset(files: Path) -> None:
    data = (files / ONNX).read_bytes()
    for mark in (b"\x42\x02\x10", b"\x42\x04\x0a\x00\x10"):
        at = data.rfind(mark, len(data) - 200)
        if at >= 0:
            (files / ONNX).write_bytes(data[: at + len(mark)] + b"\x0b" + data[at + len(mark) + 1 :])


def epsilon(old: float, new: float) -> Any:
    """Another epsilon in all of the graph's norms."""
    return lambda files: replace(files / ONNX, struct.pack("<f", old), struct.pack("<f", new))


def genai(**values: Any) -> Any:
    return lambda files: edit(files / "genai_config.json", lambda content: content["model"]["decoder"].update(values))


def short_context(files: Path) -> None:
    edit(files / "genai_config.json", lambda content: content["model"].update(context_length=256))


def lose_stop(files: Path) -> None:
    edit(files / "genai_config.json", lambda content: content["model"].update(eos_token_id=0))


def rename_data(files: Path) -> None:
    (files / "model.onnx.data").rename(files / "model.onnx_data")


def leave_old_data(files: Path) -> None:
    (files / "model.onnx_data").write_bytes(bytes(64))


def pool(files: Path) -> None:
    flags = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    edit(files / "1_Pooling/config.json", lambda content: content.update(flags))


def longest(files: Path) -> None:
    edit(files / "sentence_bert_config.json", lambda content: content.update(max_seq_length=64))


MUTATIONS = (
    Mutation("rope off by one position", "files", GENAI, ROPE, tables(lambda rows: np.roll(rows, -1, axis=0))),
    Mutation("rope base is the default's, in the graph", "files", GENAI, ROPE, other_base),
    Mutation("rope sines and cosines of the wrong sign", "files", GENAI, ROPE, tables(lambda rows: -rows, "sin_cache")),
    Mutation("rope table of cosines spoilt", "files", GENAI, (*ROPE, "kl_mean"),
             tables(lambda rows: np.roll(rows, -1, axis=0), "cos_cache")),
    Mutation("rope table ends early", "files", GENAI, ROPE, tables(end_early)),
    Mutation("rope frequencies of another base", "files", EXPORTED, ROPE,
             frequencies(lambda values: np.power(10000.0, -np.arange(32) / 32))),
    Mutation("rope scaled though the source is not", "files", EXPORTED, ROPE, frequencies(lambda values: values / 2)),
    Mutation("batch baked into the ports", "files", BOTH, ("baked_axes",), bake("batch_size"),
             "pytorch/pytorch#122321"),
    Mutation("sequence baked into the ports", "files", BOTH, ("baked_axes",), bake("sequence_length"),
             "pytorch/pytorch#122321"),
    Mutation("an old operator set", "files", BOTH, ("opset",), old_opset),
    Mutation("norm epsilon of another model, in the graph", "files", (*GENAI, *EXPORTED), SETTINGS,
             epsilon(1e-5, 1e-2), "ggml-org/llama.cpp#9310"),
    Mutation("norm epsilon of another model, in the graph", "files", ENCODER, SETTINGS, epsilon(1e-12, 1e-1),
             "nomic-ai/gpt4all#1946"),
    Mutation("runtime told another head count", "files", GENAI, SETTINGS, genai(num_attention_heads=8)),
    Mutation("runtime told another number of key heads", "files", GENAI, SETTINGS, genai(num_key_value_heads=9)),
    Mutation("runtime told fewer layers", "files", GENAI, SETTINGS, genai(num_hidden_layers=29)),
    Mutation("runtime told a short context", "files", GENAI, SETTINGS, short_context),
    Mutation("runtime's stop token lost", "files", GENAI, ("special_token_mismatch",), lose_stop,
             "abetlen/llama-cpp-python#1360"),
    Mutation("data file under another name", "files", GENAI, ("refused",), rename_data,
             "microsoft/onnxruntime#19739"),
    Mutation("a data file left from before", "files", BOTH, ("external_data_mismatch",), leave_old_data),
    Mutation("pooling by the first token", "files", ENCODER, ("config_mismatch", "cosine_mean"), pool),
    Mutation("texts cut at 64 tokens", "files", ENCODER, ("config_mismatch", "length_cosine_min"), longest),
)  # fmt: skip
