"""Vectors of a padded batch from its tokens' hidden states, as whoever runs an encoder in batches computes them.

The bundles' programs run each text alone and need none of this. It runs no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def pool(hidden: NDArray[np.float32], mask: NDArray[np.int64], how: str) -> NDArray[np.float32]:
    """float32 (texts, width) of unit length, from `hidden` (texts, tokens, width) and the attention mask.

    `how` is `cls`, `max` or `mean`; padding does not count.
    """
    import numpy as np

    inside = mask[:, :, None].astype(bool)
    if how == "cls":
        vectors = hidden[:, 0]
    elif how == "max":
        vectors = np.where(inside, hidden, -np.inf).max(axis=1)
    else:
        vectors = np.where(inside, hidden, 0).sum(axis=1) / inside.sum(axis=1)
    found: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return found
