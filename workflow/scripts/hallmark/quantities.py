"""How numbers are written for people: estimates, sizes, times. Rounds for reading only; files keep every digit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SECONDS, BYTES = "s", "B"
TINY = 1e-4  # below, numbers are written with a power of ten
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def size(count: float) -> str:
    """Bytes in decimal units: `105 MB`."""
    return _scaled(count, _SIZES)


def duration(seconds: float) -> str:
    """A time: `12.3 ms`, `4.5 s`, `2 min 5 s`, `1 h 20 min`."""
    if seconds < 60:
        return _scaled(seconds, _TIMES)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _scaled(number: float, scale: Sequence[tuple[float, str]]) -> str:
    factor, unit = _step(number, scale)
    if unit == BYTES:
        return f"{number:.0f} B"
    return f"{_significant(number / factor, 3)} {unit}"


def _step(number: float, scale: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The unit that a number reads best in; what rounds up to the next unit is written in that one."""
    return next((step for step in scale if abs(number) * 1.0005 >= step[0]), scale[-1])


def _significant(number: float, digits: int) -> str:
    """So many significant digits, without an exponent where that reads well."""
    if number == 0:
        return "0"
    exponent = int(f"{number:.{digits - 1}e}".partition("e")[2])  # of the rounded number: 999.9 has that of 1000
    if exponent >= 15 or exponent < -6:
        return f"{number:.{digits}g}"
    return f"{round(number, digits - 1 - exponent):,.{max(0, digits - 1 - exponent)}f}"


def estimate(found: Mapping[str, Any]) -> str:
    """An estimate with its interval and unit: `0.0296 [0.0281, 0.0312] nat`."""
    value, interval, unit = parts(found)
    return " ".join(part for part in (value, f"[{interval}]" if interval else "", unit) if part)


def parts(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Value, interval and unit of an estimate, as text. The interval's width sets the digits, six decimals at most.

    The interval is empty where the number is exact, to the digits shown, and where there is none.
    """
    numbers = [found[name] for name in ("value", "low", "high")]
    if numbers[1:] == [None, None]:
        numbers = [found["value"]] * 3
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        return "no number", "", ""
    factor, unit = _unit_of(numbers, found["unit"])
    value, low, high = (number / factor for number in numbers)
    if low == high:
        return _general(value, 4), "", unit
    decimals = min(6, 1 - math.floor(math.log10(high - low)))
    texts = [f"{round(number, decimals):,.{max(0, decimals)}f}" for number in (value, low, high)]
    return texts[0], f"{texts[1]}, {texts[2]}" if texts[1] != texts[2] else "", unit


def plain(value: float, unit: str) -> str:
    """One number with its unit, scaled for reading: `12.3 ms`, `105 MB`, `0.0296 nat`."""
    if unit == SECONDS:
        return duration(value)
    if unit == BYTES:
        return size(value)
    return f"{_significant(value, 3)} {unit}".rstrip()


def limit(limits: Mapping[str, float], unit: str) -> str:
    """A gate's limit: `at most 0.1 nat`; empty when there is none."""
    for side, bound in limits.items():
        text = plain(bound, unit) if unit in (SECONDS, BYTES) else f"{bound:,.10g} {unit}".rstrip()
        return f"at {'most' if side == 'max' else 'least'} {text}"
    return ""


def _unit_of(numbers: Sequence[float], unit: str) -> tuple[float, str]:
    """Factor and name of the unit that numbers of this size read best in; powers of ten when they are tiny."""
    scale = {SECONDS: _TIMES, BYTES: _SIZES}.get(unit)
    if scale is not None:
        return _step(numbers[0], scale)
    largest = max(abs(number) for number in numbers)
    if largest == 0 or largest >= TINY:
        return 1.0, unit
    exponent = math.floor(math.log10(largest))
    return 10.0**exponent, f"×10{str(exponent).translate(SUPERSCRIPT)} {unit}".rstrip()


def distinct(*numbers: float) -> list[str]:
    """Four digits each, or as many more as it takes that numbers which differ from the last one (a limit) look it."""
    bound = numbers[-1]
    for digits in range(4, 17):
        texts = [_general(number, digits) for number in numbers]
        if all(text != texts[-1] for number, text in zip(numbers, texts, strict=True) if number != bound):
            return texts
    return [repr(number) for number in numbers]


def _general(number: float, digits: int) -> str:
    text = f"{number:.{digits}g}"
    return f"{number:,.0f}" if "e+" in text and abs(number) < 1e15 else text
