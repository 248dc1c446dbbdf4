"""Numbers with their uncertainty: bootstrap intervals over blocks or pairs. Measures and judges nothing.

A statistic here is a function of *weights*: `weights[r, i]` says how often unit i occurs in resample r (float64,
resamples by units). One resample of n units drawn with replacement is one row of multinomial counts, so every
statistic is computed for many resamples at once and none has to copy the data. A row of ones gives the statistic of
the data itself.

Intervals are percentile intervals at 95 % (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993,
chapter 13) from a fixed seed, so that the same data give the same interval. Two sides measured on the same units are
resampled together (a paired bootstrap), which takes out what both sides share. What the interval cannot do: with few
units it is too narrow (simulated: it holds the median of 8 normal values in 91 % of cases, of 3 in 74 %), so of fewer
than FEWEST units there is none; and for a maximum or minimum the bootstrap is wrong altogether (P. Bickel and D.
Freedman, Annals of Statistics 9, 1981, section 6): extremes are reported by `exact`, as the worst that was seen.
What was measured one after another on a clock is `hallmark.intervals`' business.

numpy is imported inside the functions, because toolchains and the plan import this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20240229
FEWEST = 4  # units of an interval; one unit would give an interval of one point, which looks certain
CHUNK = 100  # resamples at a time, which bounds the memory to CHUNK times units numbers


class Estimate(TypedDict):
    """A number and its interval (95 %; of a speed 99 %) from `n` units: blocks, pairs, rounds. `unit` is '' for a ratio
    or a share.

    All three numbers are None, `null` in JSON, when the number could not be computed because the artifact answered
    with NaN or infinity, or raised an error, which is in `why` then. Whoever judges must treat that as failed, never as
    absent. Only `low` and `high` are None when
    the units are too few for an interval: nothing can be said of a limit then.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    unit: str
    why: NotRequired[str]


def estimate(value: float, low: float, high: float, n: int, unit: str = "") -> Estimate:
    """An Estimate of the three numbers; of None when one of them is not finite."""
    if not all(math.isfinite(number) for number in (value, low, high)):
        return unknown(n, unit)
    return Estimate(value=float(value), low=float(low), high=float(high), n=n, unit=unit)


def exact(value: float, n: int, unit: str = "") -> Estimate:
    """A number without an interval: a count, a size, or the worst of what was seen."""
    return estimate(value, value, value, n, unit)


def unknown(n: int, unit: str = "", why: str = "") -> Estimate:
    """The Estimate of a number that the artifact's answers do not allow to compute."""
    found = Estimate(value=None, low=None, high=None, n=n, unit=unit)
    return {**found, "why": why} if why else found


def bootstrap(statistic: Statistic, n: int, unit: str = "", *, strata: Sequence[int] | None = None) -> Estimate:
    """The statistic of n units with its percentile interval, widened to the value where a skew leaves it outside.

    Of fewer than FEWEST units there is no interval: `low` and `high` are None.

    Resamples in which the statistic is not defined (NaN: a rank correlation with one side constant) do not count.

    `strata` (n integers) resamples within each group: every resample has as many units of each group as the data.
    """
    import numpy as np

    if n < 1:
        raise ValueError("bootstrap: no units to resample, need at least one")
    if n < FEWEST:
        value = float(statistic(np.ones((1, n)))[0])
        return Estimate(value=value, low=None, high=None, n=n, unit=unit) if math.isfinite(value) else unknown(n, unit)
    generator = np.random.default_rng(SEED)
    groups = np.zeros(n, int) if strata is None else np.asarray(strata)
    draws = []
    for _ in range(0, RESAMPLES, CHUNK):
        draws.append(statistic(_draw_units(generator, groups)))
    tail = (1 - CONFIDENCE) / 2
    value, drawn = statistic(np.ones((1, n)))[0], np.concatenate(draws)
    low, high = np.quantile(np.append(drawn[~np.isnan(drawn)], value), [tail, 1 - tail])
    return estimate(value, min(low, value), max(high, value), n, unit)


def _draw_units(generator: np.random.Generator, groups: NDArray[np.int_]) -> NDArray[np.float64]:
    import numpy as np

    weights = np.zeros((CHUNK, len(groups)))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        chances = np.full(len(members), 1 / len(members))
        weights[:, members] = generator.multinomial(len(members), chances, size=CHUNK)
    return weights


def mean(values: ArrayLike) -> Statistic:
    """The mean over units: one value per unit."""
    import numpy as np

    data = np.asarray(values, np.float64)

    def statistic(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = weights @ data / weights.sum(1)
        return found

    return statistic


def quantile(values: ArrayLike, share: float) -> Statistic:
    """A quantile over all values, shape (units,) or (units, values per unit).

    Values are pooled; the inverse of the empirical distribution, averaged at its steps (definition 2 of R. Hyndman
    and Y. Fan, American Statistician 50, 1996), so that the median of an even number of values is the usual one.
    """
    import numpy as np

    data = np.asarray(values, np.float64)
    order = np.argsort(data, axis=None, kind="stable")
    ordered = data.ravel()[order]
    owner = order // (data.size // len(data))

    def statistic(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        passed = np.cumsum(weights[:, owner], axis=1)
        target = share * passed[:, -1:]
        below = (passed < target - 1e-9).sum(1)
        up_to = (passed <= target + 1e-9).sum(1).clip(max=ordered.size - 1)
        found: NDArray[np.float64] = (ordered[below] + ordered[up_to]) / 2
        return found

    return statistic


def median(values: ArrayLike) -> Statistic:
    """The median over units."""
    return quantile(values, 0.5)


def quotient(numerator: Statistic, denominator: Statistic) -> Statistic:
    """The quotient of two statistics of the same units (paired)."""
    return lambda weights: numerator(weights) / denominator(weights)


def spearman(first: ArrayLike, second: ArrayLike) -> Statistic:
    """Spearman's rank correlation of two values per unit, ties at their mean rank. NaN where one side is constant."""
    import numpy as np

    rank_first, rank_second = _ranks(first), _ranks(second)

    def statistic(weights: NDArray[np.float64]) -> Any:
        one, two = rank_first(weights), rank_second(weights)
        total = weights.sum(1, keepdims=True)
        one = one - (weights * one).sum(1, keepdims=True) / total
        two = two - (weights * two).sum(1, keepdims=True) / total
        spread = np.sqrt((weights * one * one).sum(1) * (weights * two * two).sum(1))
        with np.errstate(invalid="ignore", divide="ignore"):
            return (weights * one * two).sum(1) / spread

    return statistic


def _ranks(values: ArrayLike) -> Statistic:
    """Mean ranks in the resample, for each unit of the data: shape (resamples, units)."""
    import numpy as np

    data = np.asarray(values, np.float64)
    _, place, sizes = np.unique(data, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(sizes)

    def ranks(weights: NDArray[np.float64]) -> Any:
        passed = np.cumsum(weights[:, order], axis=1)
        last = passed[:, ends - 1]
        first = np.concatenate([np.zeros((len(weights), 1)), last[:, :-1]], axis=1)
        return ((first + last + 1) / 2)[:, place]

    return ranks


def averaged(statistics: Sequence[tuple[NDArray[np.int_], Statistic]]) -> Statistic:
    """The plain mean of several statistics, each of its own part of the units (indices, statistic of those units)."""

    def statistic(weights: NDArray[np.float64]) -> Any:
        return sum(part(weights[:, units]) for units, part in statistics) / len(statistics)

    return statistic


def difference(first: Statistic, second: Statistic) -> Statistic:
    """The difference of two statistics of the same units (paired)."""
    return lambda weights: first(weights) - second(weights)


def exponential(statistic: Statistic) -> Statistic:
    """e to the power of a statistic, for example a perplexity from a mean of negative log-likelihoods."""
    import numpy as np

    return lambda weights: np.exp(statistic(weights))
