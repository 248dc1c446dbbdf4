"""Intervals of speed: against textbook values, and how often they miss on simulated machines."""

import math

import numpy as np
import pytest

from hallmark import intervals
from hallmark.gates import Limit
from hallmark.speed import FIRST_LOOK, GROWTH

QUIET = {"own": 0.02, "shared": 0.02, "memory": 0.9, "hits": 0.02}
BUSY = {"own": 0.05, "shared": 0.15, "memory": 0.98, "hits": 0.1}


def moments(generator, count, own, shared, memory, hits):
    """How much longer than at rest work takes in moments that follow one another: lognormal noise of each moment, a
    state of the machine that changes slowly, and now and then a hit of up to three times."""
    state, steps = np.empty(count), generator.standard_normal(count)
    state[0] = steps[0]
    for place in range(1, count):
        state[place] = memory * state[place - 1] + math.sqrt(1 - memory**2) * steps[place]
    logs = shared * state + own * generator.standard_normal(count)
    return np.exp(logs + (generator.random(count) < hits) * np.log(generator.uniform(1.2, 3, count)))


def rounds(generator, count, speed, noise):
    """(source, artifact): times of two engines in rounds of two moments, the first drawn by lot; the artifact is
    `speed` times as fast as the source."""
    pairs = moments(generator, 2 * count, **noise).reshape(-1, 2)
    first = generator.random(count) < 0.5
    return np.where(first, pairs[:, 1], pairs[:, 0]), np.where(first, pairs[:, 0], pairs[:, 1]) / speed


def verdict(generator, speed, limit, most, noise):
    """What a gate says after the looks of one measurement."""
    source, artifact = rounds(generator, most, speed, noise)
    count, look = FIRST_LOOK, 0
    while True:
        look += 1
        found = intervals.ratio(source[:count], artifact[:count], intervals.error_at(look))
        word = Limit(min=limit).compare(found["low"], found["high"])
        if word != "inconclusive" or count == most:
            return word
        count = min(most, round(count * GROWTH))


def misses(of, true, times=1500):
    generator = np.random.default_rng(11)
    found = [of(generator) for _ in range(times)]
    return sum(not one["low"] <= true <= one["high"] for one in found) / times


def test_the_error_is_spent_over_all_looks_of_all_attempts():
    assert sum(intervals.error_at(look) for look in range(1, 10_000)) * intervals.ATTEMPTS <= intervals.ERROR
    assert intervals._signed_rank(FIRST_LOOK, intervals.error_at(1)) > 0


def test_textbook_values():
    # Wilcoxon's two-sided 5 % critical values are 0, 8, 52; Student's t from any table.
    assert [intervals._signed_rank(n, 0.05) for n in (5, 6, 10, 20)] == [0, 1, 9, 53]
    assert [intervals._student(*of) for of in ((1, 0.05), (4, 0.002), (9, 0.05))] == pytest.approx(
        [12.706, 7.173, 2.262], abs=1e-3
    )
    assert [intervals._binomial_ranks(n, 0.5, 0.05) for n in (5, 6, 20)] == [(-1, 5), (0, 5), (5, 14)]


def test_many_units_use_the_normal_approximation_and_agree_with_the_exact_ranks(monkeypatch):
    exact = intervals._signed_rank(100, 0.001)
    monkeypatch.setattr(intervals, "EXACT_UP_TO", 0)
    intervals._signed_rank.cache_clear()
    assert intervals._signed_rank(100, 0.001) == pytest.approx(exact, rel=0.02)
    intervals._signed_rank.cache_clear()


@pytest.mark.parametrize("noise", [QUIET, BUSY])
@pytest.mark.parametrize("count", [12, 40])
def test_a_ratio_is_missed_as_often_as_asked_whatever_the_noise(noise, count, monkeypatch):
    monkeypatch.setattr(intervals, "STARTS", 0.0)
    found = misses(lambda generator: intervals.ratio(*rounds(generator, count, 3.0, noise), 0.1), 3.0)
    assert 0.07 < found < 0.125


@pytest.mark.parametrize("noise", [QUIET, BUSY])
def test_an_artifact_is_not_rejected_for_being_as_fast_as_itself(noise):
    generator = np.random.default_rng(5)
    words = [verdict(generator, 1.0, 1.0, 60, noise) for _ in range(600)]
    assert words.count("fail") + words.count("pass") <= 3


def test_five_percent_are_found_on_a_quiet_machine_and_never_taken_for_faster_on_a_busy_one():
    generator = np.random.default_rng(6)
    quiet = [verdict(generator, 1 / 1.05, 1.0, 120, QUIET) for _ in range(300)]
    assert quiet.count("fail") >= 0.97 * 300
    busy = [verdict(generator, 1 / 1.05, 1.0, 120, BUSY) for _ in range(200)]
    assert busy.count("pass") == 0


@pytest.mark.parametrize(("memory", "count", "most"), [(0.0, 40, 0.12), (0.5, 80, 0.13), (0.8, 200, 0.15)])
def test_a_quantile_allows_for_rounds_that_resemble_their_neighbours(memory, count, most):
    def of(generator):
        return intervals.quantile(moments(generator, count, 0.0, 0.2, memory, 0.0), 0.5, 0.1)

    assert misses(of, 1.0, 600) < most


def test_a_quantile_far_out_needs_many_rounds():
    values = np.random.default_rng(0).lognormal(size=900)
    few, many = (intervals.quantile(values[:count], 0.99, 0.001, "ms", 1000) for count in (300, 900))
    assert (few["low"], few["high"]) == (None, None)
    assert few["value"] == pytest.approx(1000 * np.quantile(values[:300], 0.99, method="averaged_inverted_cdf"))
    assert many["low"] < many["value"] < many["high"] == pytest.approx(1000 * values.max())


def latencies(generator, count, load):
    """Of queries at random times to a server that answers one after the other and is busy `load` of the time."""
    work = generator.lognormal(0, 0.1, count)
    arrivals = np.cumsum(generator.exponential(1 / load, count)) if load else 100.0 * np.arange(count)
    ends = np.empty(count)
    free = 0.0
    for place, (arrival, seconds) in enumerate(zip(arrivals, work, strict=True)):
        free = ends[place] = max(free, arrival) + seconds
    return ends - arrivals


@pytest.mark.parametrize(("load", "few", "enough"), [(0.0, 500, 1000), (0.2, 500, 2000), (0.4, 1000, 4000)])
def test_the_99th_percentile_of_a_queue_needs_more_queries_the_busier_the_server(load, few, enough):
    """The counts that docs/gates.md gives for `server_p99_ms`."""
    error = intervals.ERROR / intervals.ATTEMPTS
    true = np.quantile(latencies(np.random.default_rng(1), 200_000, load), 0.99)

    def found(count):
        generator = np.random.default_rng(3)
        return [intervals.quantile(latencies(generator, count, load), 0.99, error) for _ in range(40)]

    assert sum(one["low"] is not None for one in found(few)) <= 4
    settled = [one for one in found(enough) if one["low"] is not None]
    assert len(settled) >= 38
    assert sum(not one["low"] <= true <= one["high"] for one in settled) <= 1


def test_a_few_openings_have_the_interval_of_their_logarithms():
    found = intervals.typical([1.0, 2.0, 4.0, 2.0], 0.05, "s")
    spread = np.std(np.log([1.0, 2.0, 4.0, 2.0]), ddof=1)
    assert found["value"] == pytest.approx(2.0)
    assert math.log(found["high"] / 2) == pytest.approx(3.182 * spread / 2, rel=1e-3)
    assert found["low"] * found["high"] == pytest.approx(4)
    assert intervals.typical([1.0, 2.0, 4.0], 0.05)["low"] is None
    assert intervals.average([0.0] * 5, 0.001, "s") == {"value": 0, "low": 0, "high": 0, "n": 5, "unit": "s"}


@pytest.mark.parametrize("count", [12, 36])
def test_growth_is_missed_as_often_as_asked_when_each_request_adds_what_it_likes(count):
    """Held memory is a sum: what one request leaves stays for all that follow."""

    def of(generator):
        return intervals.growth(np.cumsum(generator.exponential(1.0, count)), 0.1)

    assert misses(of, 1.0) < 0.17  # of 0.1 asked; exponential increments are skewed, and few


def test_a_leak_is_seen_and_one_step_of_an_allocator_settles_nothing():
    generator = np.random.default_rng(1)
    leak = 1e6 * np.arange(36) + generator.integers(0, 20, 36) * 1e5
    found = intervals.growth(leak, 0.001, "MB", 1e-3)
    assert 400 < found["low"] <= found["value"] <= found["high"] < 1600
    step = intervals.growth(np.where(np.arange(36) < 12, 0.0, 5e6), 0.001)
    assert step["low"] < 0 < step["value"] < step["high"]
    assert intervals.growth([7.0] * 36, 0.001)["high"] == 0
    assert intervals.growth([1.0], 0.001)["value"] is None


def test_what_cannot_be_compared_is_unknown():
    assert intervals.ratio([1.0] * 12, [0.0] * 12, 0.01)["value"] is None
    assert intervals.typical([0.0] * 5, 0.01)["value"] is None


def test_a_rate_turns_the_interval_of_a_time_around():
    time = {"value": 0.5, "low": 0.25, "high": 1.0, "n": 12, "unit": "s"}
    assert intervals.inverse(time, "1/s") == {"value": 2, "low": 1, "high": 4, "n": 12, "unit": "1/s"}
    assert intervals.inverse({**time, "low": None, "high": None})["value"] == 2
    assert intervals.inverse({**time, "value": None})["value"] is None
