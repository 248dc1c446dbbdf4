"""Labelled multiple choice: what an engine is asked for it, and how its picks compare with the source's. Asks nobody.

What is asked and how answers are scored is lm-evaluation-harness's business (`hallmark.harness`). Here is what runs in
the toolchain of the engine: its own tokenizer and its own logits, a question at a time; and what is made of the picks.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hallmark import statistics
from hallmark.distributions import log_softmax
from hallmark.statistics import Estimate
from hallmark.tasks import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The modules that decide what is chosen, with those of the engine's runtime.
CODE = tuple(
    f"hallmark.{name}" for name in ("choice_jobs", "choices", "harness", "distributions", "statistics", "worker")
)
METRICS = {
    "choice_accuracy": Metric("choices", "", "higher", "share of labelled questions where it picks the right choice"),
    "source_choice_accuracy": Metric("choices", "", "higher", "the same of the source on PyTorch"),
    "choice_accuracy_drop": Metric(
        "choices", "", "lower", "the source's share of right picks less the artifact's, on the same questions"
    ),
    "choice_agreement": Metric("choices", "", "higher", "share of questions where both pick the same choice"),
}

# In the engine


def encode(runner: Any, asked: Sequence[tuple[str, bool]]) -> dict[str, Any]:
    """{"answer": the token ids of each text}; the second of a pair says whether with special tokens."""
    return _attempt(lambda: [list(runner.encode(text, special=special)) for text, special in asked])


def score(runner: Any, asked: Sequence[tuple[Sequence[int], int]]) -> dict[str, Any]:
    """{"answer": [log-probability in nats, whether greedy decoding gives them too] of the last tokens of each text}.

    A pair holds a text's token ids and how many of the last are scored. Each text is run by itself from a fresh state;
    texts that differ in their last token alone, one after the other, are run once. {"error": why} when the runtime
    refuses a text, when a log-probability is not finite, and when a text is longer than `runner.positions`, if it has
    that.
    """
    return _attempt(lambda: _score(runner, asked))


def _score(runner: Any, asked: Sequence[tuple[Sequence[int], int]]) -> list[tuple[float, bool]]:
    import numpy as np

    found: list[tuple[float, bool]] = []
    last: Sequence[int] = ()
    for ids, count in asked:
        given = list(ids[:-1])
        if len(given) > getattr(runner, "positions", sys.maxsize):
            raise ValueError(f"a question of {len(given)} tokens; the model takes {runner.positions}. Leave it out")
        if given != last:
            logits, last = np.asarray(runner.logits(given), np.float32), given
        logprob, greedy = _of_targets(logits[-count:], np.asarray(ids[-count:]))
        if not math.isfinite(logprob):
            raise ValueError(f"the log-probability of {count} tokens after {len(ids) - count} others is {logprob}")
        found.append((logprob, greedy))
    return found


def _of_targets(logits: NDArray[np.float32], targets: NDArray[np.int_]) -> tuple[float, bool]:
    import numpy as np

    logprobs = log_softmax(logits)
    chosen = np.take_along_axis(logprobs, targets[:, None], axis=1)
    return float(chosen.sum(dtype=np.float64)), bool((logprobs.argmax(-1) == targets).all())


def _attempt(look: Callable[[], Any]) -> dict[str, Any]:
    """What an artifact refuses is a result, which makes its metrics null, and not a failed job."""
    try:
        return {"answer": look()}
    except Exception as error:  # whatever the artifact's runtime raises
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


# Of the picks


def metrics(source: Mapping[str, Any], artifact: Mapping[str, Any] | None) -> dict[str, Estimate]:
    """The metrics from what `hallmark.harness` wrote of both sides; null where the artifact could not answer (None)."""
    import numpy as np

    n, mean = len(source["picked"]), statistics.mean
    own = {"source_choice_accuracy": _shares(mean(source["right"]), n, 0)}
    if artifact is None:
        return own | {name: statistics.unknown(n) for name in METRICS if name not in own}
    same = np.equal(source["picked"], artifact["picked"])
    right, source_right = mean(artifact["right"]), mean(source["right"])
    return own | {
        "choice_accuracy": _shares(right, n, 0),
        "choice_accuracy_drop": _shares(statistics.difference(source_right, right), n, -1),
        "choice_agreement": _shares(mean(same), n, 0),
    }


def _shares(statistic: statistics.Statistic, n: int, least: float) -> Estimate:
    """The statistic, a mean of numbers from `least` to 1, with its interval over questions.

    Where all questions say the same, resampling them gives an interval of one point. It is widened by the largest share
    that n questions may well have missed: 1 - 0.025^(1/n), the exact bound where none was seen (C. Clopper and E.
    Pearson, Biometrika 26, 1934).
    """
    found = statistics.bootstrap(statistic, n)
    low, value, high = found["low"], found["value"], found["high"]
    if value is None or low is None or high is None or low != high:
        return found
    missed = 1 - ((1 - statistics.CONFIDENCE) / 2) ** (1 / n)
    return statistics.estimate(value, max(least, low - missed), min(1, high + missed), n)
