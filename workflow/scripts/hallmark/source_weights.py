"""The tensors of a checkpoint as float32, some rows at a time. Reads safetensors through a memory map; judges nothing.

The core has no torch, and numpy has no bfloat16, so the bytes are read where the header says they lie (the format's
README: eight bytes of length, JSON, data). Only a piece is ever in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class SourceTensor:
    """A tensor of the checkpoint: its type as in the header (`BF16`), and where its bytes lie."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in TYPES

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns when all but the last dimension are taken as rows; a vector is one row."""
        columns = self.shape[-1] if self.shape else 1
        return self.elements // max(1, columns), columns

    def rows(self, which: Any) -> Floats:
        """The rows of `matrix` that `which` picks (a slice or an array of numbers), as float32."""
        import numpy as np

        stored = np.memmap(self.path, np.dtype(TYPES[self.dtype]), "r", self.offset, self.matrix)
        picked = np.asarray(stored[which])
        if self.dtype == "BF16":
            return (picked.astype(np.uint32) << 16).view(np.float32)
        return picked.astype(np.float32)


def read(folder: Path) -> dict[str, SourceTensor]:
    """The tensors of the safetensors files in a folder, by name; of one in two files, the last counts."""
    return {tensor.name: tensor for path in sorted(folder.glob("*.safetensors")) for tensor in _of_file(path)}


def _of_file(path: Path) -> Iterator[SourceTensor]:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    for name, entry in header.items():
        if name != "__metadata__":
            start = 8 + length + entry["data_offsets"][0]
            yield SourceTensor(name, entry["dtype"], tuple(entry["shape"]), path, start)
