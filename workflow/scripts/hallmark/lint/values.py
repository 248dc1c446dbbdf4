"""Lint: every value of the weights, read through a small window, so that memory does not grow with the model.

Values are judged by their bits: of an IEEE number without its sign, everything from infinity on is not finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark.checkpoint import Checkpoint, Tensor, Weights
from hallmark.lint.findings import FLOAT16, Finding, found
from hallmark.progress import report

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINDOW = 1 << 22  # bytes
SHOWN = 20  # tensors with a finding of their own


@dataclass(frozen=True)
class Kind:
    """How a float type's bits, without the sign, are told apart.

    `infinite` is the first that is not finite, `nan` the first that is no number; from `beyond` on a value becomes
    infinite in float16, which rounds 65520 up (0: it cannot).
    """

    unsigned: str
    infinite: int
    nan: int
    beyond: int = 0


# Everything is computed in float32, so what lies beyond it counts as infinite in float64.
KINDS = {
    "F64": Kind("<u8", 0x47EF_FFFF_F000_0000, 0x7FF0_0000_0000_0001, 0x40EF_FE00_0000_0000),
    "F32": Kind("<u4", 0x7F80_0000, 0x7F80_0001, 0x477F_F000),
    "BF16": Kind("<u2", 0x7F80, 0x7F81, 0x4780),
    "F16": Kind("<u2", 0x7C00, 0x7C01),
    "F8_E5M2": Kind("<u1", 0x7C, 0x7D),
    "F8_E4M3": Kind("<u1", 0x7F, 0x7F),
}


@dataclass
class Counts:
    """What was seen in a tensor. `largest` are bits without the sign."""

    elements: int = 0
    infinite: int = 0
    nan: int = 0
    beyond: int = 0
    largest: int = 0


def check(checkpoint: Checkpoint, folder: Path) -> Iterator[Finding]:
    """Findings on the values of every float tensor in the folder that the checkpoint was read from, less adapters."""
    broken: list[tuple[str, Counts, Tensor]] = []
    large: list[tuple[str, Counts, Tensor]] = []
    files = {name: weights for name, weights in checkpoint.weights.items() if not name.startswith("adapter")}
    done, total = 0, sum(weights.size for weights in files.values())
    for file, weights in files.items():
        for name, tensor in sorted(weights.tensors.items(), key=lambda item: item[1].begin):
            counts = count(folder / file, weights, tensor)
            if counts is None:
                continue
            if counts.infinite or counts.nan:
                broken.append((name, counts, tensor))
            elif counts.beyond:
                large.append((name, counts, tensor))
            elif counts.elements > 1 and not counts.largest and len(tensor.shape) > 1:
                yield found("all_zero", name, f"all {counts.elements:,} values are zero")
        done += weights.size
        report(round(done / 1e6), round(total / 1e6), "MB")
    yield from _broken(broken)
    yield from _large(large)


def _broken(seen: list[tuple[str, Counts, Tensor]]) -> Iterator[Finding]:
    for name, counts, _ in seen[:SHOWN]:
        yield found(
            "non_finite", name, f"{counts.nan:,} NaN and {counts.infinite:,} infinite of {counts.elements:,} values"
        )
    if more := seen[SHOWN:]:
        yield found("non_finite", more[0][0], f"and {len(more)} tensors more with NaN or infinite values")


def _large(seen: list[tuple[str, Counts, Tensor]]) -> Iterator[Finding]:
    for name, counts, tensor in seen[:SHOWN]:
        top = _value(counts.largest, tensor.dtype)
        what = f"{counts.beyond:,} of {counts.elements:,} values beyond float16's 65504, the largest is {top:.6g}"
        yield found("beyond_float16", name, what, trait=FLOAT16)
    if more := seen[SHOWN:]:
        what = f"and {len(more)} tensors more with values beyond float16's 65504"
        yield found("beyond_float16", more[0][0], what, trait=FLOAT16)


def _value(bits: int, dtype: str) -> float:
    """The number that a float type's bits stand for."""
    import numpy as np

    if dtype == "BF16":
        return float(np.array([bits << 16], "<u4").view("<f4")[0])
    return float(np.array([bits], KINDS[dtype].unsigned).view(KINDS[dtype].unsigned.replace("u", "f"))[0])


def count(path: Path, weights: Weights, tensor: Tensor) -> Counts | None:
    """Counts of a tensor's values; None for a type that is no float, and for one that is not wholly in the file."""
    kind = KINDS.get(tensor.dtype)
    if kind is None or weights.data + tensor.end > weights.size or tensor.end <= tensor.begin:
        return None
    counts = Counts(elements=tensor.elements)
    for window in windows(path, weights, tensor):
        _add(counts, kind, _bits(window, kind))
    return counts


def windows(path: Path, weights: Weights, tensor: Tensor) -> Iterator[bytes]:
    """A tensor's bytes, WINDOW at a time."""
    left = tensor.end - tensor.begin
    with path.open("rb") as stream:
        stream.seek(weights.data + tensor.begin)
        while left > 0 and (window := stream.read(min(WINDOW, left))):
            left -= len(window)
            yield window


def _bits(window: bytes, kind: Kind) -> NDArray[Any]:
    import numpy as np

    width = int(kind.unsigned[-1])
    raw = np.frombuffer(window, kind.unsigned, count=len(window) // width)
    bits: NDArray[Any] = raw & raw.dtype.type((1 << (8 * width - 1)) - 1)
    return bits


def _add(counts: Counts, kind: Kind, bits: np.ndarray[Any, Any]) -> None:
    import numpy as np

    top = int(bits.max(initial=0))
    counts.largest = max(counts.largest, top)
    if top >= kind.infinite:
        nan = int(np.count_nonzero(bits >= kind.nan))
        counts.nan += nan
        counts.infinite += int(np.count_nonzero(bits >= kind.infinite)) - nan
    if kind.beyond and top >= kind.beyond:
        counts.beyond += int(np.count_nonzero(bits >= kind.beyond))


def same(checkpoint: Checkpoint, folder: Path, first: str, second: str) -> bool:
    """Whether two tensors hold the same bytes; True also when one is not there to be compared."""
    places = [
        (folder / file, weights, weights.tensors[name])
        for name in (first, second)
        for file, weights in checkpoint.model_files.items()
        if name in weights.tensors
    ]
    if len(places) != 2:
        return True
    if places[0][2].dtype != places[1][2].dtype or places[0][2].shape != places[1][2].shape:
        return False
    return all(a == b for a, b in zip(windows(*places[0]), windows(*places[1]), strict=True))
