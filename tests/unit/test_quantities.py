"""Numbers as people read them."""

import pytest

from hallmark.quantities import distinct, duration, estimate, limit, plain, size


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999_999, "1.00 MB"), (105_000_000, "105 MB"), (14_200_000_000, "14.2 GB")],
)
def test_size(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (4.5, "4.50 s"), (125, "2 min 5 s"), (4800, "1 h 20 min"), (3.2e-6, "3.20 µs")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("numbers", "unit", "text"),
    [
        ((0.02964, 0.02811, 0.03124), "nat", "0.0296 [0.0281, 0.0312] nat"),
        ((0.564, 0.541, 0.588), "nat", "0.564 [0.541, 0.588] nat"),
        ((1.52, 1.41, 1.63), "", "1.52 [1.41, 1.63]"),
        ((0.0123, 0.0119, 0.0131), "s", "12.3 [11.9, 13.1] ms"),
        ((12345.0, 11000.0, 14000.0), "tokens/s", "12,300 [11,000, 14,000] tokens/s"),
        ((0.000002, 0.0000019, 0.0000021), "nat", "2.00 [1.90, 2.10] ×10⁻⁶ nat"),
        ((0.0, 0.0, 0.0), "strings", "0 strings"),
        ((105e6, 105e6, 105e6), "B", "105 MB"),
        ((0.9999990, 0.9999989, 0.9999991), "", "0.999999"),
        ((None, None, None), "nat", "no number"),
        ((float("nan"), 0.0, 1.0), "", "no number"),
    ],
)
def test_estimates_show_the_digits_that_their_interval_supports(numbers, unit, text):
    value, low, high = numbers
    assert estimate({"value": value, "low": low, "high": high, "unit": unit}) == text


def test_limits_are_written_exactly():
    assert limit({"max": 0.05}, "nat") == "at most 0.05 nat"
    assert limit({"min": 0.985}, "") == "at least 0.985"
    assert limit({"max": 5e8}, "B") == "at most 500 MB"


def test_plain_numbers():
    assert [plain(0.0296, "nat"), plain(0.35, "s"), plain(1e6, "B")] == ["0.0296 nat", "350 ms", "1.00 MB"]


def test_numbers_that_differ_from_the_limit_look_different():
    assert distinct(0.1, 0.1) == ["0.1", "0.1"]
    assert distinct(0.1000001, 0.1) == ["0.1000001", "0.1"]
    assert distinct(100_000_001, 99_999_999, 1e8) == ["100,000,001", "99,999,999", "100,000,000"]
