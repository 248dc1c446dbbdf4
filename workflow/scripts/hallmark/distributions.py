"""Next-token distributions from logits, and how far two of them are apart. Runs no model.

Everything is in nats and works on the last axis, the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities, float32 like the logits; the sum over the vocabulary is taken in float64."""
    import numpy as np

    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    logprobs: Floats = shifted - np.log(total).astype(np.float32)
    return logprobs


def divergence(source: Floats, artifact: Floats) -> NDArray[np.float64]:
    """KL(source || artifact) at each position, from log-probabilities (positions, vocabulary)."""
    import numpy as np

    found: NDArray[np.float64] = (np.exp(source) * (source - artifact)).sum(axis=-1, dtype=np.float64)
    return found


def loss(logprobs: Floats, targets: NDArray[np.int32]) -> float:
    """Mean negative log-likelihood of the tokens `targets` (positions,)."""
    import numpy as np

    return -float(np.take_along_axis(logprobs, targets.astype(np.int64)[:, None], axis=1).mean(dtype=np.float64))


def nonfinite(values: Floats) -> int:
    """How many of the values are NaN or infinite."""
    import numpy as np

    return int(values.size - np.isfinite(values).sum())
