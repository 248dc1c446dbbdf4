"""Weights that a quantiser scaled on purpose: AWQ multiplies rows of one matrix and divides columns of the next.

Between `up_proj` and `down_proj` of a gated layer nothing but a product stands, so the two factors cancel. They are not
kept anywhere: here they are taken from the first matrix, and the second has to agree with them. Source: NNCF's AWQ
(nncf/quantization/algorithms/weight_compression/awq.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hallmark.census import Stored
from hallmark.source_weights import SourceTensor
from hallmark.weight_error import Read, pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST, SECOND = ".up_proj.weight", ".down_proj.weight"


def partner(name: str) -> str:
    """The source's tensor whose factors a tensor shares: itself for the first of the two, '' for any other."""
    if name.endswith(FIRST):
        return name
    return name.removesuffix(SECOND) + FIRST if name.endswith(SECOND) else ""


def factors(stored: Stored, tensor: SourceTensor) -> NDArray[np.float32]:
    """What each row of the source is multiplied by in the stored matrix, by least squares; 1 where nothing says so."""
    import numpy as np

    found = np.ones(stored.shape[0], np.float32)
    for rows in pieces(*stored.shape):
        source, there = tensor.rows(rows).astype(np.float64), stored.read(rows)
        power = (source**2).sum(axis=1)
        product = (source * there).sum(axis=1)
        found[rows] = np.where((power > 0) & (product > 0), product / np.maximum(power, np.finfo(np.float64).tiny), 1)
    return found


def layout(name: str, read: Read, by: NDArray[np.float32]) -> Read:
    """The source's tensor as it is after scaling."""
    if name.endswith(FIRST):
        return lambda which: read(which) * by[which][:, None]
    return lambda which: read(which) / by
