"""The weights of an OpenVINO IR as numbers: de-compressed, some rows at a time. Runs without OpenVINO, knows no names.

Source of the layout: NNCF's weight compression, which keeps a scale and perhaps a zero point beside each weight, and
stores numbers of 4 bits with the first in the low half of a byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark.census import Stored
from hallmark.openvino_ir import Constant, Network
from hallmark.pairing import Found
from hallmark.weight_error import ROW, Grid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FLOATS = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2"}
INTEGERS = {"u8": 8, "i8": 8, "u4": 4, "i4": 4}
SCALE, ZERO = "/scale", "/zero_point"
MODULE = re.compile(r"^__module\.(?P<module>.+?)(/\w+::\w+)?/(?P<operation>[A-Z]\w*)$")  # an operation's name


def weights(network: Network, path: Path, weighed: bool = False) -> tuple[list[Found], list[Constant]]:
    """The weights in the .bin at `path`, and those matrices among them that cannot be read; `weighed` as of a Grid."""
    constants = {constant.name: constant for constant in network.constants}
    found, unread = [], []
    for constant in network.weights:
        stored = _stored(constant, constants, path, weighed)
        if stored is not None:
            hints = (constant.name, *_modules(network, constant))
            found.append(Found(stored, hints, min(stored.shape) > 1))
        elif len(constant.shape) > 1:
            unread.append(constant)
    return found, unread


def _modules(network: Network, constant: Constant) -> Iterator[str]:
    """The source's names that the operations reading a constant tell: what is added is a bias, the rest a weight."""
    for _, name in network.readers.get(constant.name, ()):
        found = MODULE.match(name)
        if found:
            yield f"{found['module']}.{'bias' if found['operation'].startswith('Add') else 'weight'}"


def epsilons(network: Network, path: Path) -> Iterator[float]:
    """What norms add to their variance: attributes of operations, and numbers that a module named `...norm` adds."""
    yield from network.epsilons
    for constant in network.constants:
        readers = network.readers.get(constant.name, ())
        if (
            constant.elements == 1
            and constant.kind in FLOATS
            and any(kind == "Add" and "norm" in name.lower() for kind, name in readers)
        ):
            yield float(numbers(constant, path)[0])


def _stored(constant: Constant, constants: Mapping[str, Constant], path: Path, weighed: bool) -> Stored | None:
    if constant.kind in FLOATS:
        return _plain(constant, path)
    scale, zero = (constants.get(constant.name + end) for end in (SCALE, ZERO))
    if constant.kind in INTEGERS and scale is not None and len(constant.shape) in (2, 3):
        stored = _compressed(constant, scale, zero, path)
        return replace(stored, grid=replace(stored.grid, weighed=weighed))
    return None


def _plain(constant: Constant, path: Path) -> Stored:
    import numpy as np

    columns = constant.shape[-1]
    rows = constant.elements // max(1, columns)

    def read(which: slice) -> Floats:
        data = np.memmap(path, np.dtype(FLOATS[constant.kind]), "r", constant.offset, (rows, columns))
        picked = np.asarray(data[which])
        if constant.kind == "bf16":
            return (picked.astype(np.uint32) << 16).view(np.float32)
        return picked.astype(np.float32)

    return Stored(constant.name, (rows, columns), constant.kind, Grid(constant.kind), read)


def _compressed(constant: Constant, scale: Constant, zero: Constant | None, path: Path) -> Stored:
    """Rows of groups of numbers; a scale (and zero point) for each group, or one for the whole row."""
    import numpy as np

    bits, rows = INTEGERS[constant.kind], constant.shape[0]
    width = constant.shape[-1]
    groups = constant.shape[1] if len(constant.shape) == 3 else 1
    scales = numbers(scale, path).astype(np.float32).reshape(rows, groups, 1)
    zeros = None if zero is None else numbers(zero, path).astype(np.float32)
    zeros = zeros if zeros is None or zeros.size == 1 else zeros.reshape(rows, groups, 1)
    per_row = groups * width * bits // 8

    def read(which: slice) -> Floats:
        data = np.memmap(path, np.uint8, "r", constant.offset, (constant.size,))
        raw = np.asarray(data[which.start * per_row : which.stop * per_row])
        values = unpacked(raw, constant.kind).astype(np.float32).reshape(-1, groups, width)
        if zeros is not None:
            values -= zeros if zeros.size == 1 else zeros[which]
        return np.asarray((values * scales[which]).reshape(-1, groups * width), np.float32)

    grid = Grid("integer", bits, width if groups > 1 else ROW, symmetric=zero is None)
    kind = f"{constant.kind} " + (f"group {width}" if groups > 1 else "row")
    return Stored(constant.name, (rows, groups * width), kind, grid, read)


def numbers(constant: Constant, path: Path) -> Any:
    """A constant's numbers, in memory and in order."""
    import numpy as np

    data = np.fromfile(path, np.uint8, constant.size, offset=constant.offset)
    if constant.kind in INTEGERS:
        return unpacked(data, constant.kind)[: constant.elements]
    if constant.kind == "bf16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return data.view(FLOATS[constant.kind])


def unpacked(data: NDArray[np.uint8], kind: str) -> Any:
    """Integers of 4 or 8 bits, with or without sign."""
    import numpy as np

    if INTEGERS[kind] == 8:
        return data.view(np.int8) if kind == "i8" else data
    halves = np.stack([data & 15, data >> 4], axis=-1).ravel()
    return (halves ^ 8).astype(np.int8) - 8 if kind == "i4" else halves
