"""Where the numbers and settings of an artifact lie in its files, so that a defect is a few lines. Judges nothing.

Every write replaces bytes by as many others, in files that are this run's own copies.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from hallmark import gguf_file, onnx_file, onnx_weights, openvino_ir, openvino_weights

GGUF, ONNX, OPENVINO = "model.gguf", "model.onnx", "openvino_model.xml"
KINDS = {"F32": "<f4", "F16": "<f2", "float32": "<f4", "float16": "<f2", "f32": "<f4", "f16": "<f2"}
NUMBERS = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}  # kinds of GGUF values that defects change
# Modules that both models have, as their checkpoints name them.
LLAMA = {"wide": "model.layers.{}.mlp.up_proj", "square": "model.layers.{}.self_attn.o_proj",
         "norm": "model.layers.{}.input_layernorm", "embedding": "model.embed_tokens"}  # fmt: skip
BERT = {"wide": "encoder.layer.{}.intermediate.dense", "square": "encoder.layer.{}.attention.output.dense",
        "norm": "encoder.layer.{}.output.LayerNorm", "embedding": "embeddings.word_embeddings"}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Numbers in a file: bytes from `offset`; with a `block`, those at byte `at` of each block of so many bytes."""

    path: Path
    offset: int
    bytes: int
    dtype: str = "u1"
    block: int = 0
    at: int = 0

    def read(self) -> Any:
        """The numbers, a copy."""
        return np.ascontiguousarray(self._picked(self._raw())).view(self.dtype).ravel()

    def write(self, values: Any) -> None:
        """Put as many numbers in their place."""
        raw = self._raw()
        picked = self._picked(raw)
        picked[:] = np.ascontiguousarray(values, self.dtype).view("u1").reshape(picked.shape)
        patch(self.path, self.offset, raw.tobytes())

    def change(self, how: Callable[[Any], Any]) -> None:
        self.write(how(self.read()))

    def _raw(self) -> Any:
        return np.fromfile(self.path, "u1", self.bytes, offset=self.offset)

    def _picked(self, raw: Any) -> Any:
        width = np.dtype(self.dtype).itemsize
        return raw.reshape(-1, self.block)[:, self.at : self.at + width] if self.block else raw


@dataclass(frozen=True)
class Weight:
    """A weight in an artifact. `numbers` are as stored, `scales` are theirs, the `rest` what else belongs to them."""

    numbers: Piece
    scales: Piece | None
    rest: tuple[Piece, ...] = ()

    @property
    def pieces(self) -> list[Piece]:
        """What is moved when the weight is: in GGUF the scales lie among the numbers."""
        own = [self.scales] if self.scales and not self.scales.block else []
        return [self.numbers, *own, *self.rest]

    @property
    def floats(self) -> Piece:
        """The scales of a quantised weight, else its numbers."""
        return self.scales or self.numbers


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(data)


def replace(path: Path, old: bytes, new: bytes, count: int = -1) -> None:
    """Replace bytes by as many others; raises ValueError where they are not, as the defect would be none."""
    data = path.read_bytes()
    if old not in data or len(old) != len(new):
        raise ValueError(f"{path}: {old[:60]!r} is not there, or is to be replaced by a text of another length")
    path.write_bytes(data.replace(old, new, count))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file's content in place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def module(files: Path, role: str, layer: int = 0) -> str:
    """The name of a module of either model, by its role."""
    if (files / GGUF).is_file():
        encodes = header(files).architecture == "bert"
    else:
        encodes = json.loads((files / "config.json").read_text(encoding="utf-8"))["model_type"] == "bert"
    return (BERT if encodes else LLAMA)[role].format(layer)


def weight(files: Path, role: str, layer: int = 0) -> Weight:
    """Where a module's weight lies, whatever the format."""
    name = module(files, role, layer)
    if (files / GGUF).is_file():
        return _of_gguf(files, name)
    return _of_onnx(files, name, role) if (files / ONNX).is_file() else _of_openvino(files, name)


def header(files: Path) -> gguf_file.GgufFile:
    return _header(files / GGUF, (files / GGUF).stat().st_mtime_ns)


@cache
def _header(path: Path, changed: int) -> gguf_file.GgufFile:
    return gguf_file.read(path)


def gguf_tensor(files: Path, name: str) -> gguf_file.Tensor:
    """A tensor by the name of the checkpoint's module."""
    file = header(files)
    numbers = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(numbers[file.architecture], int(file.of_architecture("block_count")))
    return file.by_name[f"{table.get_name(name)}.weight"]


def _of_gguf(files: Path, name: str) -> Weight:
    tensor = gguf_tensor(files, name)
    path, place = files / GGUF, (tensor.offset, tensor.bytes)
    if tensor.type in KINDS:
        return Weight(Piece(path, *place, KINDS[tensor.type]), None)
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.type]][1]
    return Weight(Piece(path, *place), Piece(path, *place, "<f2", size, gguf_file.SCALES[tensor.type][0]))


def _of_onnx(files: Path, name: str, role: str) -> Weight:
    file = onnx_file.read(files / ONNX)
    tensors = {tensor.name: tensor for tensor in file.tensors}

    def piece(text: str, kind: str = "") -> Piece:
        found = tensors[text]
        return Piece(found.path, found.offset, found.length, kind or KINDS.get(found.type, "u1"))

    names = (f"{name}.", "lm_head.") if role == "embedding" else (f"{name}.",)  # tied: one tensor, under either name
    for found in onnx_weights.weights(file)[0]:
        hints = [hint.replace("/", ".").replace(".attn.", ".self_attn.").strip(".") + "." for hint in found.hints]
        if (found.stored.shape[0] > 1 or role == "norm") and any(own in hint for hint in hints for own in names):
            stored = found.stored.name
            break
    else:
        raise ValueError(f"{files}: no weight of {name}")
    reader = next((op for op in file.operators if op.type == "MatMulNBits" and stored in op.inputs), None)
    if reader is not None:
        return Weight(piece(stored), piece(reader.inputs[2]), tuple(piece(text) for text in reader.inputs[3:4] if text))
    stem = stored.removesuffix("_quantized")
    return Weight(piece(stored), piece(f"{stem}_scale") if f"{stem}_scale" in tensors else None)


def _of_openvino(files: Path, name: str) -> Weight:
    network, path = openvino_ir.read(files / OPENVINO), files / "openvino_model.bin"
    constants = {constant.name: constant for constant in network.constants}

    def piece(text: str) -> Piece:
        found = constants[text]
        return Piece(path, found.offset, found.size, KINDS.get(found.kind, "u1"))

    for found in openvino_weights.weights(network, path)[0]:
        if any(
            re.sub(r"^self\.|\._openvino_orig(?=_)", "", hint) in (f"{name}.weight", f"{name}_weight")
            for hint in found.hints
        ):
            own = found.stored.name
            break
    else:
        raise ValueError(f"{files}: no weight of {name}")
    scale, zero = f"{own}/scale", f"{own}/zero_point"
    return Weight(piece(own), piece(scale) if scale in constants else None, (piece(zero),) if zero in constants else ())


def entry(files: Path, key: str) -> tuple[int, int]:
    """Where the value of a GGUF's key lies, and its kind."""
    text = struct.pack("<Q", len(key)) + key.encode()
    with (files / GGUF).open("rb") as stream:
        data = stream.read(min(gguf_start(files), 1 << 26))
    at = data.find(text)
    if at < 0:
        raise ValueError(f"{files / GGUF}: has no {key}")
    at += len(text)
    return at + 4, struct.unpack_from("<I", data, at)[0]


def gguf_start(files: Path) -> int:
    """The byte at which the tensors' data begins."""
    return min(tensor.offset for tensor in header(files).tensors)


def set_number(files: Path, key: str, value: float) -> None:
    """Give a GGUF's key another number; `{arch}` in the key is the file's architecture."""
    at, kind = entry(files, key.replace("{arch}", header(files).architecture))
    patch(files / GGUF, at, struct.pack(NUMBERS[kind], value))


def lose(files: Path, key: str) -> None:
    """Make a GGUF's key unknown to every reader, in its last letter."""
    key = key.replace("{arch}", header(files).architecture)
    at, _ = entry(files, key)
    patch(files / GGUF, at - 5, b"X")


def constants(files: Path) -> Iterator[tuple[openvino_ir.Constant, Piece]]:
    """The floating-point constants of an OpenVINO model."""
    for constant in openvino_ir.read(files / OPENVINO).constants:
        if constant.kind in KINDS:
            place = (constant.offset, constant.size, KINDS[constant.kind])
            yield constant, Piece(files / "openvino_model.bin", *place)


def tensors(files: Path) -> Iterator[tuple[onnx_file.Tensor, Piece]]:
    """The floating-point tensors of an ONNX model that are stored as they are."""
    file = onnx_file.read(files / ONNX)
    for tensor in (*file.tensors, *file.constants):
        if tensor.type in KINDS and tensor.encoding in onnx_weights.PLAIN:
            yield tensor, Piece(tensor.path, tensor.offset, tensor.length, KINDS[tensor.type])
