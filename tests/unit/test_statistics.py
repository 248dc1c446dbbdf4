"""Estimates and their intervals, against values worked out in other ways."""

import json
import math

import numpy as np
import pytest

from hallmark import statistics

VALUES = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]


def value(statistic, units=6):
    return statistic(np.ones((1, units)))[0]


def repeated(weights, *columns):
    """The data of one resample, written out."""
    counts = weights.astype(int)
    return [np.repeat(np.asarray(column), counts, axis=0) for column in columns]


@pytest.fixture
def weights():
    return np.random.default_rng(3).multinomial(6, [1 / 6] * 6, size=40).astype(float)


def test_a_row_of_ones_gives_the_statistic_of_the_data():
    assert value(statistics.mean(VALUES)) == pytest.approx(np.mean(VALUES))
    assert value(statistics.median(VALUES)) == 3.5
    assert value(statistics.median([2.0, 9.0, 4.0]), 3) == 4.0
    assert value(statistics.exponential(statistics.mean([0.0, 2.0])), 2) == pytest.approx(math.e)


def test_weights_mean_the_same_as_repeated_data(weights):
    other = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0]
    mean, median = statistics.mean(VALUES)(weights), statistics.median(VALUES)(weights)
    ratio = statistics.quotient(statistics.mean(VALUES), statistics.mean(other))(weights)
    for row, found in zip(weights, zip(mean, median, ratio, strict=True), strict=True):
        first, second = repeated(row, VALUES, other)
        assert found == pytest.approx((first.mean(), np.median(first), first.mean() / second.mean()))


def test_a_quantile_pools_all_values_of_a_unit(weights):
    pooled = np.arange(60.0).reshape(6, 10)[:, ::-1]
    found = statistics.quantile(pooled, 0.99)(weights)
    for row, quantile in zip(weights, found, strict=True):
        (values,) = repeated(row, pooled)
        assert quantile == np.quantile(values.ravel(), 0.99, method="averaged_inverted_cdf")


def _rank(values):
    return [sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2 for one in values]


def test_spearman_is_the_correlation_of_mean_ranks(weights):
    other = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0]
    found = statistics.spearman(VALUES, other)(weights)
    for row, rho in zip(weights, found, strict=True):
        first, second = repeated(row, VALUES, other)
        if len(set(first)) > 1 and len(set(second)) > 1:
            assert rho == pytest.approx(np.corrcoef(_rank(first), _rank(second))[0, 1])


def test_spearman_does_not_depend_on_scale_and_sees_order():
    values = np.arange(10.0)
    assert value(statistics.spearman(values, values**3), 10) == pytest.approx(1)
    assert value(statistics.spearman(values, -values), 10) == pytest.approx(-1)


def test_averaged_takes_each_part_by_itself():
    parts = [(np.array([0, 1]), statistics.mean([1.0, 3.0])), (np.array([2]), statistics.mean([10.0]))]
    assert value(statistics.averaged(parts), 3) == 6.0


def test_the_same_data_give_the_same_interval():
    assert statistics.bootstrap(statistics.mean(VALUES), 6) == statistics.bootstrap(statistics.mean(VALUES), 6)


def test_an_interval_holds_its_value_and_narrows_with_more_units():
    generator = np.random.default_rng(0)
    few, many = (statistics.bootstrap(statistics.mean(generator.normal(5, 1, n)), n, "s") for n in (20, 500))
    for found in (few, many):
        assert found["low"] < found["value"] < found["high"]
        assert (found["unit"], found["n"] in (20, 500)) == ("s", True)
    assert many["high"] - many["low"] < 0.3 * (few["high"] - few["low"])


def test_the_interval_of_a_mean_is_the_textbook_one():
    data = np.random.default_rng(1).normal(0, 2, 400)
    found = statistics.bootstrap(statistics.mean(data), 400)
    error = 1.96 * data.std() / math.sqrt(400)
    assert found["high"] - found["value"] == pytest.approx(error, rel=0.1)
    assert found["value"] - found["low"] == pytest.approx(error, rel=0.1)


def test_equal_units_have_no_width():
    found = statistics.bootstrap(statistics.median([2.0] * 5), 5)
    assert (found["low"], found["value"], found["high"]) == (2, 2, 2)


def test_strata_keep_the_size_of_each_group():
    sizes = []

    def size_of_first(weights):
        sizes.extend(weights[:, :3].sum(1))
        return weights[:, :3].sum(1)

    statistics.bootstrap(size_of_first, 10, strata=[0] * 3 + [1] * 7)
    assert set(sizes) == {3}


def test_what_is_not_finite_becomes_null():
    for found in (statistics.exact(math.nan, 3), statistics.estimate(1, 0, math.inf, 3), statistics.unknown(3)):
        assert (found["value"], found["low"], found["high"], found["n"]) == (None, None, None, 3)
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_nothing_to_resample_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        statistics.bootstrap(statistics.mean([]), 0)


@pytest.mark.parametrize("units", [1, 2, 3])
def test_too_few_units_have_no_interval_rather_than_one_that_looks_certain(units):
    found = statistics.bootstrap(statistics.mean([2.0] * units), units, "ms")
    assert found == {"value": 2.0, "low": None, "high": None, "n": units, "unit": "ms"}
    assert statistics.bootstrap(statistics.mean([math.nan] * units), units)["value"] is None
