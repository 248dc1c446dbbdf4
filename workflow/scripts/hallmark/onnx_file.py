"""Reads the structure of an ONNX file through a memory map, for the core, which has no onnx. Runs and changes nothing.

Only the fields that an inspection needs are decoded (onnx.proto of ONNX 1.23, whose field numbers never change).
Weights stay in the file: a tensor knows where its bytes lie, here or in an external data file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# TensorProto.DataType: name, and bits of one element
TYPES = {
    1: ("float32", 32), 2: ("uint8", 8), 3: ("int8", 8), 4: ("uint16", 16), 5: ("int16", 16), 6: ("int32", 32),
    7: ("int64", 64), 8: ("string", 0), 9: ("bool", 8), 10: ("float16", 16), 11: ("float64", 64), 12: ("uint32", 32),
    13: ("uint64", 64), 14: ("complex64", 64), 15: ("complex128", 128), 16: ("bfloat16", 16), 17: ("float8e4m3fn", 8),
    18: ("float8e4m3fnuz", 8), 19: ("float8e5m2", 8), 20: ("float8e5m2fnuz", 8), 21: ("uint4", 4), 22: ("int4", 4),
    23: ("float4e2m1", 4), 24: ("float8e8m0", 8), 25: ("uint2", 2), 26: ("int2", 2),
}  # fmt: skip
INLINE_FIELDS = {4: "float32", 5: "int32", 7: "int64", 10: "float64", 11: "uint64"}  # float_data, int32_data, ...
RAW_DATA, EXTERNAL = 9, 1


class DamagedOnnx(ValueError):
    """The file is not a whole ONNX model; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Tensor:
    """A constant of the graph. `path`, `offset` and `length` say where its bytes lie.

    `encoding` is `raw` (little-endian elements) or, for values kept as a protobuf list, that list's type.
    """

    name: str
    type: str
    dims: tuple[int, ...]
    path: Path
    offset: int
    length: int
    encoding: str = "raw"

    @property
    def elements(self) -> int:
        count = 1
        for size in self.dims:
            count *= size
        return count


@dataclass(frozen=True)
class Operator:
    """One operation of the graph. `attributes` holds the numbers and texts among its attributes.

    Exporters name it by the path of the module it comes from.
    """

    type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | float | str]
    name: str = ""


@dataclass(frozen=True)
class Value:
    """An input or output: element type, and its dimensions, a text where one is free."""

    name: str
    type: str
    dims: tuple[int | str, ...]


@dataclass
class OnnxFile:
    """A model's structure, subgraphs included. `external` are the data files that it needs beside it.

    `tensors` are its initializers, `constants` what operations of type Constant hold, named by their output.
    """

    path: Path
    ir_version: int = 0
    producer: str = ""
    opsets: dict[str, int] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)

    @property
    def external(self) -> list[str]:
        return sorted({tensor.path.name for tensor in self.tensors if tensor.path != self.path})


Span = tuple[int, int]


class _Reader:
    """Decodes protobuf messages in a map of the file; a message is a span (start, end)."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data = path, data

    def fields(self, span: Span) -> Iterator[tuple[int, Any]]:
        """Number and value of each field: an int for a varint or a fixed number, a span for anything longer."""
        position, end = span
        while position < end:
            tag, position = self.varint(position, end)
            kind = tag & 7
            value: Any
            if kind == 0:
                value, position = self.varint(position, end)
            else:
                if kind == 2:
                    size, position = self.varint(position, end)
                elif kind in (1, 5):
                    size = 8 if kind == 1 else 4
                else:
                    raise DamagedOnnx(f"{self.path}: byte {position} is not the start of an ONNX field")
                if position + size > end:
                    raise DamagedOnnx(
                        f"{self.path}: ends at byte {end}, inside a field of {size} bytes; it is cut short"
                    )
                value, position = (position, position + size), position + size
            yield tag >> 3, value

    def varint(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while position < end and shift < 70:
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
        raise DamagedOnnx(f"{self.path}: ends inside a number at byte {position}; it is cut short or not an ONNX file")

    def text(self, span: Span) -> str:
        return self.data[span[0] : span[1]].decode("utf-8", errors="replace")

    def integers(self, value: int | Span) -> list[int]:
        """A repeated integer's part: one number, or a packed list of them."""
        if isinstance(value, int):
            return [_signed(value)]
        numbers, (position, end) = [], value
        while position < end:
            number, position = self.varint(position, end)
            numbers.append(_signed(number))
        return numbers

    def pairs(self, span: Span) -> tuple[str, str]:
        """A StringStringEntryProto."""
        found = {number: self.text(value) for number, value in self.fields(span)}
        return found.get(1, ""), found.get(2, "")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def read(path: Path) -> OnnxFile:
    """The model in the file. Raises DamagedOnnx when it is cut short or lacks external data, OSError if absent."""
    file = OnnxFile(path)
    size = path.stat().st_size
    if not size:
        raise DamagedOnnx(f"{path}: is empty")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(path, data)
        graph: Span | None = None
        for number, value in reader.fields((0, size)):
            if number == 1:
                file.ir_version = value
            elif number == 2:
                file.producer = reader.text(value)
            elif number == 7:
                graph = value
            elif number == 8:
                opset = dict(reader.fields(value))
                file.opsets[reader.text(opset[1]) if 1 in opset else ""] = opset.get(2, 0)
        if graph is None:
            raise DamagedOnnx(f"{path}: holds no graph; it is cut short or not an ONNX file")
        _read_graph(reader, graph, file, top=True)
    _check_places(file)
    return file


def _check_places(file: OnnxFile) -> None:
    for path in {tensor.path for tensor in file.tensors if tensor.path != file.path}:
        needed = max(tensor.offset + tensor.length for tensor in file.tensors if tensor.path == path)
        size = path.stat().st_size if path.is_file() else 0
        if size < needed:
            raise DamagedOnnx(
                f"{path}: {size} bytes, but {file.path.name} refers to {needed}; it is missing or cut short"
            )


def _read_graph(reader: _Reader, span: Span, file: OnnxFile, top: bool = False) -> None:
    for number, value in reader.fields(span):
        if number == 1:
            _read_operator(reader, value, file)
        elif number == 5:
            file.tensors.append(_read_tensor(reader, value))
        elif number in (11, 12) and top:
            (file.inputs if number == 11 else file.outputs).append(_read_value(reader, value))


def _read_operator(reader: _Reader, span: Span, file: OnnxFile) -> None:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: [], 7: []}
    attributes: dict[str, int | float | str] = {}
    held: list[Tensor] = []
    for number, value in reader.fields(span):
        if number in texts:
            texts[number].append(reader.text(value))
        elif number == 5:
            found = list(reader.fields(value))
            name = next((reader.text(part) for key, part in found if key == 1), "")
            for key, part in found:
                if key == 2:
                    attributes[name] = struct.unpack("<f", reader.data[part[0] : part[1]])[0]
                elif key == 3:
                    attributes[name] = _signed(part)
                elif key == 4:
                    attributes[name] = reader.text(part)
                elif key == 5:
                    held.append(_read_tensor(reader, part))
                elif key in (6, 11):  # a branch or a loop's body
                    _read_graph(reader, part, file)
    kind, domain = "".join(texts[4]), "".join(texts[7])
    name = "".join(texts[3])
    file.constants += [replace(tensor, name=texts[2][0]) for tensor in held if kind == "Constant" and texts[2]]
    file.operators.append(Operator(kind, domain, tuple(texts[1]), tuple(texts[2]), attributes, name))


def _read_tensor(reader: _Reader, span: Span) -> Tensor:
    name, kind, dims = "", 0, list[int]()
    place: tuple[Path, int, int] = (reader.path, 0, 0)
    encoding, external, entries = "raw", False, dict[str, str]()
    for number, value in reader.fields(span):
        if number == 1:
            dims += reader.integers(value)
        elif number == 2:
            kind = value
        elif number == 8:
            name = reader.text(value)
        elif number == RAW_DATA or (number in INLINE_FIELDS and not isinstance(value, int)):
            place = (reader.path, value[0], value[1] - value[0])
            encoding = "raw" if number == RAW_DATA else INLINE_FIELDS[number]
        elif number == 13:
            entries.update([reader.pairs(value)])
        elif number == 14:
            external = value == EXTERNAL
    if external:
        location = Path(entries.get("location", ""))
        if location.name != str(location):
            raise DamagedOnnx(
                f"{reader.path}: tensor {name} refers to {str(location)!r}, which is not a file beside it"
            )
        place = (reader.path.parent / location, int(entries.get("offset", 0)), int(entries.get("length", 0)))
    type_name, bits = TYPES.get(kind, (f"type {kind}", 0))
    tensor = Tensor(name, type_name, tuple(dims), *place, encoding)
    stored = -(-tensor.elements * bits // 8)
    if encoding == "raw" and stored and tensor.length != stored:
        raise DamagedOnnx(
            f"{tensor.path}: tensor {name} has {tensor.length} bytes, {stored} are needed for {tensor.dims}"
        )
    return tensor


def _read_value(reader: _Reader, span: Span) -> Value:
    parts = dict(reader.fields(span))
    outer = dict(reader.fields(parts[2])) if 2 in parts else {}
    tensor = dict(reader.fields(outer[1])) if 1 in outer else {}
    dims: list[int | str] = []
    for number, dim in reader.fields(tensor.get(2, (0, 0))):
        size = dict(reader.fields(dim)) if number == 1 else {}
        dims.append(_signed(size[1]) if 1 in size else reader.text(size[2]) if 2 in size else "?")
    return Value(reader.text(parts[1]), TYPES.get(tensor.get(1, 0), ("unknown", 0))[0], tuple(dims))
