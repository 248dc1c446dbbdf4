"""What a GGUF file says of itself: its metadata, its tensors, and whether it is whole. Runs and changes nothing.

Reads the header with the standard library, because `gguf.GGUFReader` takes seconds for a vocabulary and does not notice
a missing end; sizes and names of the tensor types are the `gguf` package's. Little-endian files of version 2 and 3.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
LONGEST = 1 << 30  # a string or an array beyond this is damage, not content
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BLOCKS_AT_ONCE = 1 << 20  # bounds the memory of a look at all values
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
# Where a block holds the float16 numbers that scale its weights: byte offsets, from llama.cpp's ggml-common.h. A weight
# is finite if these are.
SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ1_S": (0,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,),
    "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip


class DamagedFile(ValueError):
    """The file is not a whole GGUF file; the message says where it ends to be one."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as stored: `shape` has the row length first, `type` is a name (`Q4_K`), `offset` counts from byte 0."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    bytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class GgufFile:
    """A file's header: metadata as Python values (arrays as lists) and tensors in the order they are stored."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def of_architecture(self, key: str) -> Any:
        """The value of `<architecture>.<key>`, None when there is none."""
        return self.metadata.get(f"{self.architecture}.{key}")

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def bits_per_weight(self) -> float:
        """Bits that the tensors take in the file, over their elements."""
        return 8 * sum(tensor.bytes for tensor in self.tensors) / max(1, self.elements)

    @property
    def asked_type(self) -> str:
        """What the file says it is, `Q4_K_M`; the types of its tensors may differ (see `type_histogram`)."""
        from gguf import LlamaFileType

        number = int(self.metadata.get("general.file_type", -1))
        if number not in LlamaFileType.__members__.values():
            return f"type {number}"
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")


def type_histogram(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Number of tensors of each type, most first."""
    return dict(Counter(tensor.type for tensor in tensors).most_common())


def read(path: Path) -> GgufFile:
    """Read a file's header and check that all tensors it names lie within the file. Raises DamagedFile."""
    with path.open("rb") as stream:
        header = _Header(path, stream)
        count = header.begin()
        metadata = dict(header.entry() for _ in range(count[1]))
        infos = [header.tensor() for _ in range(count[0])]
        alignment = int(metadata.get("general.alignment", ALIGNMENT))
        start = -(-stream.tell() // alignment) * alignment
    tensors = tuple(Tensor(name, shape, kind, start + offset, size) for name, shape, kind, offset, size in infos)
    needed = max((tensor.offset + tensor.bytes for tensor in tensors), default=0)
    if needed > path.stat().st_size:
        raise DamagedFile(
            f"{path}: {path.stat().st_size} bytes, but its tensors need {needed}: the end is missing, make it again"
        )
    return GgufFile(path, metadata, tensors)


def count_nonfinite(file: GgufFile) -> tuple[int, list[str]]:
    """How many numbers in the file are NaN or infinite (weights, or the scales of blocks of weights), and the names of
    the types it cannot look into. Maps the file and takes bounded memory.
    """
    import numpy as np

    count, unknown = 0, set()
    for tensor in file.tensors:
        if tensor.type not in (*FLOATS, "BF16", *SCALES):
            unknown.add(tensor.type)
        for values in _float_values(file.path, tensor):
            count += int(values.size - np.isfinite(values).sum())
    return count, sorted(unknown)


def _float_values(path: Path, tensor: Tensor) -> Iterator[Any]:
    """The tensor's floating-point numbers, in pieces."""
    import gguf
    import numpy as np

    stored = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.bytes,))
    if tensor.type == "BF16":  # as float32 of the same value
        for piece in _pieces(stored.view(np.uint16)):
            yield (piece.astype(np.uint32) << 16).view(np.float32)
    elif tensor.type in FLOATS:
        yield from _pieces(stored.view(FLOATS[tensor.type]))
    elif tensor.type in SCALES:
        _, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.type]]
        for piece in _pieces(stored.reshape(-1, size)):
            for offset in SCALES[tensor.type]:
                yield np.ascontiguousarray(piece[:, offset : offset + 2]).view(np.float16)


def _pieces(values: Any) -> Iterator[Any]:
    for first in range(0, len(values), BLOCKS_AT_ONCE):
        yield values[first : first + BLOCKS_AT_ONCE]


class _Header:
    """Reads a header's parts in their order."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path, self.stream = path, stream

    def begin(self) -> tuple[int, int]:
        """Number of tensors and of metadata entries."""
        if self._take(4) != MAGIC:
            self._damaged("it does not begin with GGUF")
        (version,) = self._numbers("I", 1)
        if version not in VERSIONS:
            self._damaged(f"version {version}, expected {' or '.join(map(str, VERSIONS))} (little-endian)")
        tensors, entries = self._numbers("Q", 2)
        return tensors, entries

    def entry(self) -> tuple[str, Any]:
        return self._string(), self._value(self._numbers("I", 1)[0])

    def tensor(self) -> tuple[str, tuple[int, ...], str, int, int]:
        """Name, shape, type, offset from the beginning of the data, and bytes."""
        import gguf

        name = self._string()
        shape = self._numbers("Q", self._numbers("I", 1)[0])
        (number,) = self._numbers("I", 1)
        (offset,) = self._numbers("Q", 1)
        if number not in gguf.GGMLQuantizationType.__members__.values():
            self._damaged(f"tensor {name} is of type {number}, which this version of the gguf package does not know")
        kind = gguf.GGMLQuantizationType(number)
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        return name, shape, kind.name, offset, prod(shape) // weights * size

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            (element,), (count,) = self._numbers("I", 1), self._numbers("Q", 1)
            return list(self._numbers(NUMBERS[element], count)) if element in NUMBERS else self._list(element, count)
        if kind not in NUMBERS:
            self._damaged(f"a value of kind {kind}, which does not exist")
        return self._numbers(NUMBERS[kind], 1)[0]

    def _list(self, kind: int, count: int) -> list[Any]:
        return [self._value(kind) for _ in range(count)]

    def _string(self) -> str:
        return self._take(self._numbers("Q", 1)[0]).decode("utf-8", "replace")

    def _numbers(self, code: str, count: int) -> tuple[Any, ...]:
        return struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(code)))

    def _take(self, count: int) -> bytes:
        found = self.stream.read(count) if count < LONGEST else b""
        if len(found) != count:
            self._damaged(f"{count} bytes wanted, {len(found)} there")
        return found

    def _damaged(self, why: str) -> NoReturn:
        raise DamagedFile(f"{self.path}: at byte {self.stream.tell()}: {why}: not a whole GGUF file, make it again")
