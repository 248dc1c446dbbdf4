"""Defects of weights, the same in every format: moved, turned, spoilt, cut off, of another model. Judges nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.mutations.catalogue import Mutation
from tests.mutations.places import GGUF, ONNX, Weight, gguf_start, gguf_tensor, module, patch, replace, weight

from hallmark import gguf_file

EACH = (
    "smollm2/gguf/q8_0", "smollm2/onnx/int8", "smollm2/openvino/int8",
    "minilm/gguf/q8_0", "minilm/onnx/fp32", "minilm/openvino/int8",
)  # fmt: skip
FEW = ("smollm2/onnx/int8", *EACH[3:])  # where a defect is of a kind that others stand for
FOUR_BITS = ("smollm2/gguf/q4_k_m", "minilm/gguf/q4_k_m")
HALF = ("minilm/gguf/f16", "minilm/onnx/fp16", "minilm/openvino/fp16")
SCALED = ("smollm2/gguf/q8_0", "smollm2/onnx/int8", "smollm2/openvino/int8", "minilm/gguf/q8_0", "minilm/openvino/int8")
CHANGED = ("weight_mismatches",)


def swap(first: Weight, second: Weight) -> None:
    for one, other in zip(first.pieces, second.pieces, strict=True):
        kept = one.read()
        one.write(other.read())
        other.write(kept)


def swap_layers(files: Path) -> None:
    swap(weight(files, "wide", 0), weight(files, "wide", 1))


def swap_norms(files: Path) -> None:
    swap(weight(files, "norm", 0), weight(files, "norm", 1))


def shift_layers(files: Path) -> None:
    """Each layer has the weights of the one before it, the first those of the last: an index that is off by one."""
    for layer in range(1, 6):
        swap(weight(files, "wide", 0), weight(files, "wide", layer))


def transpose(files: Path) -> None:
    if (files / GGUF).is_file():
        tensor = gguf_tensor(files, module(files, "square"))
        kind = gguf.GGMLQuantizationType[tensor.type]
        stored = weight(files, "square").numbers
        values = gguf.dequantize(stored.read().view("u1").reshape(tensor.shape[1], -1), kind)
        stored.write(gguf.quantize(np.ascontiguousarray(values.T), kind).ravel().view(stored.dtype))
    else:
        stored = weight(files, "square").numbers
        side = int(len(stored.read()) ** 0.5)
        stored.change(lambda values: values.reshape(side, side).T)


def put(value: float) -> Any:
    """Spoil one number, or one scale, in the middle of a weight."""

    def apply(files: Path) -> None:
        def change(values: Any) -> Any:
            values[len(values) // 2] = value
            return values

        weight(files, "wide", 1).floats.change(change)

    return apply


def zero_tail(files: Path) -> None:
    """The last eighth is zero, as after a write that was cut off into a file that was made in its full size."""

    def change(values: Any) -> Any:
        values[-len(values) // 8 :] = 0
        return values

    weight(files, "wide").numbers.change(change)


def zero_end_of_file(files: Path) -> None:
    path = data_file(files)
    lost = path.stat().st_size // 50
    patch(path, path.stat().st_size - lost, bytes(lost))


def roll_scales(files: Path) -> None:
    weight(files, "wide").floats.change(lambda values: np.roll(values, 1))


def double_one_scale(files: Path) -> None:
    def change(values: Any) -> Any:
        values[3] *= 2
        return values

    weight(files, "square", 2).floats.change(change)


def scale_all(files: Path) -> None:
    """A factor that was applied twice, or not at all."""
    weight(files, "square", 1).floats.change(lambda values: values * 1.05)


def negate(files: Path) -> None:
    weight(files, "wide", 2).floats.change(lambda values: -values)


def replace_norm(files: Path) -> None:
    weight(files, "norm").numbers.change(np.ones_like)


def add_one_to_norm(files: Path) -> None:
    weight(files, "norm", 1).numbers.change(lambda values: values + 1)


def shift_embedding(files: Path) -> None:
    """Each token has the vector of the one before it."""
    found = weight(files, "embedding")
    for piece in found.pieces:
        rows = 49152 if module(files, "embedding") == "model.embed_tokens" else 30522
        piece.change(lambda values, rows=rows: np.roll(values.reshape(rows, -1), 1, axis=0).ravel())


def swap_halves(files: Path) -> None:
    """Rows in two halves the other way round, as where rotary or fused parts are taken apart in the wrong order."""
    stored = weight(files, "square")
    for piece in stored.pieces:
        piece.change(lambda values: np.roll(values, len(values) // 2))


def data_file(files: Path) -> Path:
    """The file with the weights."""
    names = (GGUF, "model.onnx.data", ONNX, "openvino_model.bin")
    return next(files / name for name in names if (files / name).is_file())


def cut(share: float) -> Any:
    """Leave only this share of the file with the weights."""

    def apply(files: Path) -> None:
        path = data_file(files)
        with path.open("r+b") as stream:
            stream.truncate(int(path.stat().st_size * share))

    return apply


def take_anothers(files: Path) -> None:
    """The weights of a sibling that is at least as large, under this one's description."""
    own = data_file(files)
    others = [folder for folder in sorted(files.parent.iterdir()) if folder != files]
    path = max((data_file(folder) for folder in others if (folder / own.name).is_file()), key=_size)
    if own.name == GGUF:
        start, other = gguf_start(files), gguf_start(path.parent)
        wanted = own.stat().st_size - start
        with path.open("rb") as stream:
            stream.seek(other)
            patch(own, start, stream.read(wanted)[:wanted])
    else:
        own.write_bytes(path.read_bytes())


def _size(path: Path) -> int:
    return path.stat().st_size


def lose_tensor(files: Path) -> None:
    """The name of a weight is that of none any more."""
    name = gguf_tensor(files, module(files, "norm", 1)).name.encode()
    replace(files / GGUF, name, name[:-1] + b"_")


def pad_file(files: Path) -> None:
    """Bytes inside the weights are lost, and the file is as long as it was: everything after them is moved."""
    path = data_file(files)
    data = path.read_bytes()
    start = 1 << 20
    if path.name == GGUF:
        start = gguf_file.read(path).tensors[len(gguf_file.read(path).tensors) // 2].offset
    path.write_bytes(data[:start] + data[start + 64 :] + bytes(64))


NONFINITE = ("nonfinite",)
MUTATIONS = (
    Mutation("two layers' weights swapped", "files", (*EACH, *FOUR_BITS, *HALF), CHANGED, swap_layers),
    Mutation("layers off by one", "files", FEW, CHANGED, shift_layers),
    Mutation("two layers' norms swapped", "files", EACH, CHANGED, swap_norms),
    Mutation("a square weight transposed", "files", (*EACH, *HALF), CHANGED, transpose),
    Mutation("one NaN", "files", (*EACH, *FOUR_BITS, *HALF), NONFINITE, put(float("nan")), "intel/auto-round#1908"),
    Mutation(
        "one inf", "files", (*FEW, *FOUR_BITS[1:], *HALF), NONFINITE, put(float("inf")), "ggml-org/llama.cpp#7311"
    ),
    Mutation("a weight's tail is zero", "files", (*EACH, *HALF), CHANGED, zero_tail),
    Mutation("the file's tail is zero", "files", (*EACH, *FOUR_BITS), (*CHANGED, "refused"), zero_end_of_file),
    Mutation("scales of the next group", "files", (*SCALED, *FOUR_BITS), CHANGED, roll_scales),
    Mutation("one scale doubled", "files", (*SCALED[3:], *FOUR_BITS), CHANGED, double_one_scale),
    Mutation("a factor of 1.05 too many", "files", FEW, CHANGED, scale_all),
    Mutation("a sign lost", "files", FEW, CHANGED, negate),
    Mutation(
        "a norm's weight replaced by ones", "files", FEW, (*CHANGED, "missing_tensors"), replace_norm,
        "ggml-org/llama.cpp#22565",
    ),
    Mutation("one added to a norm that has it", "files", FEW, (*CHANGED, "missing_tensors"), add_one_to_norm),
    Mutation("embedding off by one token", "files", FEW, CHANGED, shift_embedding),
    Mutation("halves of a weight's rows swapped", "files", FEW, CHANGED, swap_halves, "huggingface/transformers#31766"),
    Mutation("file cut short", "files", EACH, ("refused",), cut(0.9), "ggml-org/llama.cpp#6885"),
    Mutation("file is empty", "files", FEW, ("refused",), cut(0)),
    Mutation(
        "another variant's weights", "files",
        ("smollm2/gguf/q4_k_m", "smollm2/onnx/int4", "smollm2/openvino/int4_awq", "minilm/gguf/q4_k_m",
         "minilm/openvino/int4", "minilm/onnx/fp16"), (*CHANGED, "nonfinite", "other_type_share"), take_anothers,
    ),
    Mutation(
        "a tensor's name lost", "files", ("smollm2/gguf/q8_0", "minilm/gguf/q8_0"),
        ("missing_tensors", "surplus_tensors", "refused"), lose_tensor,
    ),
    Mutation("64 bytes lost inside the weights", "files", FEW, (*CHANGED, "nonfinite", "refused"), pad_file),
)  # fmt: skip
