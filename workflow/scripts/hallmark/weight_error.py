"""How far stored weights are from the source's, in units of what their type explains. Knows no format and no names.

Rounding to a grid of step h makes an error of h / sqrt(12) on average. The step follows from the source's own values:
their range in each block, over the levels that the bits give. So the error of a sound artifact is about 1 in this
unit, whatever the type, and that of swapped, transposed, zeroed or wrongly scaled weights is many times as much. It is
taken for a whole tensor, and for each row, because the wrong end of a tensor vanishes in its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

ROW, TENSOR = 0, -1
PIECE = 1 << 20  # elements looked at together
# Largest error of a rounded number over the number itself (half the spacing), and the least there is.
FLOATS = {"f64": (2.0**-24, 0.0), "f32": (2.0**-23, 0.0), "f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 0.0)}
SUPER = 256  # columns that share the scale of scales of a K-quant
SCALE_LEVELS = 63  # and the levels that the scales of its blocks have


@dataclass(frozen=True)
class Grid:
    """The values that a stored weight can take: a type of FLOATS, or `integer` of `bits` with a scale for each `block`.

    `block` may be ROW (one scale for a row) or TENSOR (one for all). `symmetric` scales have no zero point.
    `nested` scales are themselves rounded, in groups of 256 columns. `weighed`: rounded so that answers on calibration
    text change least, which the weights themselves may pay for.
    """

    kind: str
    bits: int = 0
    block: int = ROW
    symmetric: bool = True
    nested: bool = False
    weighed: bool = False


@dataclass(frozen=True)
class Difference:
    """A stored tensor against its source. `ratio` and `worst_row` are in units of what the type explains.

    `relative` is the root mean square of the error over that of the source.
    """

    ratio: float
    worst_row: float
    relative: float

    def exceeds(self, limits: tuple[float, float]) -> bool:
        """Whether the tensor's ratio or that of a row is above its limit; numbers that are not finite are."""
        return not (self.ratio <= limits[0] and self.worst_row <= limits[1])


Read = Callable[[slice], "Floats"]


def pieces(rows: int, columns: int) -> Iterator[slice]:
    """Slices that cover the rows, each of about PIECE elements."""
    step = max(1, PIECE // max(1, columns))
    for first in range(0, rows, step):
        yield slice(first, min(rows, first + step))


def compare(source: Read, stored: Read, shape: tuple[int, int], grid: Grid) -> Difference:
    """Compare two matrices of `shape`, read by rows, when the second is on `grid`."""
    import numpy as np

    largest = _largest(source, shape) if grid.block == TENSOR else (0.0, 0.0)
    found = explained = power = worst = 0.0
    for rows in pieces(*shape):
        values = source(rows).astype(np.float64)
        errors = ((stored(rows) - values) ** 2).sum(axis=1)
        expected = _explained(values, grid, largest)
        found, explained, power = found + errors.sum(), explained + expected.sum(), power + (values**2).sum()
        worst = max(worst, float(_ratio(errors, expected).max(initial=0.0)))
    return Difference(
        float(_ratio(np.array([found]), np.array([explained]))[0]),
        worst,
        float(np.sqrt(found / power)) if power else float(np.sqrt(found)),
    )


def _ratio(errors: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root of the quotient; 0 where there is no error, infinite where none was to be expected, or none is a number."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(errors == 0, 0.0, errors / expected)
    return np.sqrt(np.where(np.isnan(quotient), np.inf, quotient))


def _largest(source: Read, shape: tuple[int, int]) -> tuple[float, float]:
    """Least and largest value of a whole tensor, zero included."""
    low = high = 0.0
    for rows in pieces(*shape):
        values = source(rows)
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    return low, high


def _explained(values: NDArray[np.float64], grid: Grid, largest: tuple[float, float]) -> NDArray[np.float64]:
    """The squared error of each row that rounding to the grid explains."""
    import numpy as np

    if grid.kind != "integer":
        share, least = FLOATS[grid.kind]
        return np.asarray((np.maximum(np.abs(values) * share, least) ** 2).sum(axis=1) / 3)
    rows, columns = values.shape
    if grid.block == TENSOR:
        step = _step(np.float64(largest[0]), np.float64(largest[1]), grid)
        return np.full(rows, columns * step**2 / 12)
    block = columns if grid.block == ROW else grid.block
    short = -columns % block
    padded = np.pad(values, ((0, 0), (0, short))) if short else values
    blocks = padded.reshape(rows, -1, block)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    squares = _step(low, high, grid) ** 2
    if grid.nested:
        squares = squares + _nested(squares, grid, block)
    return np.asarray(squares.sum(axis=1) * block / 12)


def _step(low: Any, high: Any, grid: Grid) -> Any:
    """Distance of two values of the grid, for a block whose values go from `low` to `high`."""
    import numpy as np

    span = 2 * np.maximum(-low, high) if grid.symmetric else high - low
    return np.asarray(span / (2**grid.bits - 1))


def _nested(squares: NDArray[np.float64], grid: Grid, block: int) -> NDArray[np.float64]:
    """What the rounding of a block's scale adds, in squares of steps: half a level of scales, times the values."""
    import numpy as np

    count = SUPER // block
    short = -squares.shape[1] % count
    groups = np.pad(squares, ((0, 0), (0, short))).reshape(len(squares), -1, count)
    largest = np.repeat(groups.max(axis=2), count, axis=1)[:, : squares.shape[1]]
    return np.asarray(largest * (2 ** (grid.bits - 1) / SCALE_LEVELS) ** 2)
