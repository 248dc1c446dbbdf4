"""Intervals of times, ratios and growth that hold however often one looks at them. Measures and judges nothing.

**How often one looks.** A measurement looks at its rounds several times and stops when it has seen enough, and one that
settled nothing is repeated, up to ATTEMPTS times. Each look is a chance to be wrong, so the chance ERROR is spent over
all of them: an attempt gets ERROR / ATTEMPTS, and its look k the share 1 / (k (k + 1)) of that, which sums to one over
any number of looks. By Bonferroni's inequality the true value lies in every interval of every attempt with a chance of
at least 1 - ERROR, so one may stop at any of them for any reason: repeated confidence intervals (C. Jennison and B.
Turnbull, J. R. Statist. Soc. B 51, 1989) on a geometric schedule (V. Mnih, C. Szepesvari and J.-Y. Audibert, Empirical
Bernstein stopping, ICML 2008). Sequences that hold at every single round exist too (S. Howard and A. Ramdas, Bernoulli
28, 2022); a handful of looks needs no such thing.

**Ratios of two engines.** Which of them comes first in a round is drawn by lot. If the noise of a machine belongs to
its moments, whichever engine they meet, the logarithm of a round's ratio is by that draw alone as likely above the true
one as below, and the interval of the signed-rank test (F. Wilcoxon, Biometrics 1, 1945; J. Hodges and E. Lehmann,
Annals of Mathematical Statistics 34, 1963) is exact: however the noise is distributed, however rounds resemble their
neighbours. The value is the Hodges-Lehmann estimate, the median of the means of any two rounds. What no round shows is
what differs each time a process starts, such as where its memory lies (T. Kalibera and R. Jones, Rigorous benchmarking
in reasonable time, ISMM 2013): for that each interval is widened by STARTS, a convention which
`benchmarks/speed_verdicts` puts to the test.

**Times of one engine** have no partner to cancel what neighbouring rounds share. The interval of a quantile comes from
the binomial distribution of ranks, of as many independent rounds as the series is worth (autocorrelations of being
below the quantile, summed by C. Geyer's rule, Statistical Science 7, 1992). It is too narrow when neighbours resemble
one another strongly over few rounds (simulated, correlation 0.8: 40 rounds miss in 9 % of cases where 5 % are asked,
200 rounds in 5 %).

**A few openings of a model** allow only an interval that takes their logarithms to be normal (Student's t). **Growth**
has Student's interval of what is added from one value to the next: of a sum, the values depend on each other, what is
added does not. One large step makes it wide.

Where rounds are too few for the confidence asked, `low` and `high` are None. numpy is imported inside the functions,
because toolchains and the plan import this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

from hallmark.statistics import FEWEST, Estimate, estimate, unknown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ERROR = 0.01  # chance, both sides of the interval together, that any look of any attempt misses the true value
ATTEMPTS = 5  # measurements of an artifact's speed, one a run, while noise keeps its verdict open
STARTS = 0.01  # share by which starting the same two processes again may change their ratio
EXACT_UP_TO = 100  # units; the signed-rank distribution of more is normal to a thousandth of a rank's share


def error_at(look: int) -> float:
    """The chance of error that look 1, 2, 3 ... of an attempt may take, both sides together."""
    return ERROR / ATTEMPTS / (look * (look + 1))


def ratio(numerators: Sequence[float], denominators: Sequence[float], error: float) -> Estimate:
    """How many times larger the numerators are, from pairs measured in one round each."""
    import numpy as np

    n = len(numerators)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.asarray(numerators, np.float64) / np.asarray(denominators, np.float64))
    if not np.isfinite(logs).all():
        return unknown(n)
    means = np.sort(((logs[:, None] + logs[None, :]) / 2)[np.triu_indices(n)])
    rank = _signed_rank(n, error)
    value = math.exp(np.median(means))
    if not rank:
        return _open(value, n)
    low, high = math.exp(means[rank - 1]), math.exp(means[-rank])
    return estimate(value, low / (1 + STARTS), high * (1 + STARTS), n)


@cache
def _signed_rank(n: int, error: float) -> int:
    """The largest k so that the k-th smallest and k-th largest of the n (n + 1) / 2 means of two bound the interval;
    0 if there is none."""
    if n <= EXACT_UP_TO:
        below = _signed_rank_below(n)
        return sum(chance <= error / 2 for chance in below[: len(below) // 2])
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return int(n * (n + 1) / 4 - NormalDist().inv_cdf(1 - error / 2) * spread)


@cache
def _signed_rank_below(n: int) -> list[float]:
    """The chances that the sum of the ranks 1 to n, each taken or not by a fair coin, is at most 0, 1, 2 ..."""
    import numpy as np

    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1
    for place in range(1, n + 1):
        taken = np.zeros_like(chances)
        taken[place:] = chances[:-place]
        chances = (chances + taken) / 2
    below: list[float] = np.cumsum(chances).tolist()
    return below


def quantile(values: Sequence[float], share: float, error: float, unit: str = "", factor: float = 1.0) -> Estimate:
    """A quantile of times taken one after another, times `factor`."""
    import numpy as np

    n = len(values)
    series = np.asarray(values, np.float64) * factor
    value = float(np.quantile(series, share, method="averaged_inverted_cdf"))
    worth = int(n / _resemblance(series <= value))
    lower, upper = _binomial_ranks(worth, share, error)
    if lower < 0 or upper >= worth:
        return _open(value, n, unit)
    ordered = np.sort(series)
    low, high = ordered[lower * n // worth], ordered[-((worth - upper - 1) * n // worth) - 1]
    return estimate(value, min(low, value), max(high, value), n, unit)


def _resemblance(below: NDArray[np.bool_]) -> float:
    """How many rounds of a series are worth one independent round, at least 1: 1 + 2 (r1 + r2 + ...), the sum ending
    where two autocorrelations in a row sum to nothing."""
    centred = below - below.mean()
    power = float(centred @ centred)
    if not power:
        return 1.0
    lags = [float(centred[lag:] @ centred[:-lag]) / power for lag in range(1, len(below) // 2)]
    total = 0.0
    for first, second in zip(lags[::2], lags[1::2], strict=False):
        if first + second <= 0:
            break
        total += first + second
    return max(1.0, 1 + 2 * total)


def _binomial_ranks(n: int, share: float, error: float) -> tuple[int, int]:
    """Places, from 0, of the values between which the quantile of n independent ones lies; -1 and n: there is none."""
    import numpy as np

    counts = np.arange(n + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    logs = factorials[n] - factorials - factorials[::-1] + counts * math.log(share) + (n - counts) * math.log1p(-share)
    chances = np.exp(logs)
    lower = int((np.cumsum(chances) <= error / 2).sum()) - 1
    upper = n - int((np.cumsum(chances[::-1]) <= error / 2).sum())
    return lower, upper


def typical(values: Sequence[float], error: float, unit: str = "") -> Estimate:
    """The geometric mean of a few positive values."""
    import numpy as np

    n = len(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.asarray(values, np.float64))
    if not np.isfinite(logs).all():
        return unknown(n, unit)
    value = math.exp(logs.mean())
    if n < FEWEST:
        return _open(value, n, unit)
    reach = _student(n - 1, error) * float(logs.std(ddof=1)) / math.sqrt(n)
    return estimate(value, value * math.exp(-reach), value * math.exp(reach), n, unit)


def average(values: Sequence[float], error: float, unit: str = "") -> Estimate:
    """The mean of a few values of at least zero."""
    import numpy as np

    n = len(values)
    value = float(np.mean(values))
    if n < FEWEST:
        return _open(value, n, unit)
    reach = _student(n - 1, error) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return estimate(value, max(0.0, value - reach), value + reach, n, unit)


@cache
def _student(freedom: int, error: float) -> float:
    """The value that |t| exceeds with chance `error`: by the trapezoidal rule in the angle whose tangent is
    t / sqrt(freedom), in which the density is a power of the cosine."""
    import numpy as np

    angles = np.linspace(0, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    tail = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1])[::-1])])
    angle = float(np.interp(error, tail / tail[-1], angles[::-1]))
    return math.sqrt(freedom) * math.tan(angle)


def growth(values: Sequence[float], error: float, unit: str = "", factor: float = 1.0) -> Estimate:
    """How much a series grows on average from one value to the next, times `factor`; negative where it shrinks."""
    import numpy as np

    added = np.diff(np.asarray(values, np.float64)) * factor
    n = len(added)
    if not n:
        return unknown(n, unit)
    value = float(added.mean())
    if n < FEWEST:
        return _open(value, n, unit)
    reach = _student(n - 1, error) * float(added.std(ddof=1)) / math.sqrt(n)
    return estimate(value, value - reach, value + reach, n, unit)


def inverse(found: Estimate, unit: str = "") -> Estimate:
    """One over an estimate of a positive number: a rate from a time."""
    value, low, high = found["value"], found["low"], found["high"]
    if value is None:
        return unknown(found["n"], unit)
    if low is None or high is None:
        return _open(1 / value, found["n"], unit)
    return estimate(1 / value, 1 / high, 1 / low, found["n"], unit)


def _open(value: float, n: int, unit: str = "") -> Estimate:
    """A number from too few units for an interval."""
    return Estimate(value=value, low=None, high=None, n=n, unit=unit) if math.isfinite(value) else unknown(n, unit)
