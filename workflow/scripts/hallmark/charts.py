"""Charts as inline SVG, drawn here so that the report needs no library and no network. They hold no colours: CSS does.

`scatter` plots artifacts by two numbers with their intervals, `strips` plots samples of a time, one row an artifact.
Text in the SVG is escaped; the same inputs give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import quantiles
from typing import Literal

from hallmark.quantities import SUPERSCRIPT

WIDTH, HEIGHT = 560, 360
LEFT, RIGHT, TOP, BOTTOM = 76, 18, 18, 48
GLYPH = 6.3  # width of a label's character in the chart's units, a little more than the fonts in use have
SMALLEST = 1e-6  # logarithmic axes start here at the latest: what is below cannot be told from nothing
ROW, STRIP = 38, 10

Kind = Literal["linear", "log", "nines"]
Interval = tuple[float, float, float]  # value, low, high
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Axis:
    """A scale. `nines` is logarithmic in the distance to 1 (0.9, 0.99, 0.999): for shares and cosines.

    `at` gives a position between 0 and 1; with `reverse` the larger values come first.
    """

    title: str
    kind: Kind
    low: float
    high: float
    factor: float = 1.0
    reverse: bool = False

    def at(self, value: float) -> float:
        low, high, here = (self._linear(number) for number in (self.low, self.high, value))
        share = 0.5 if low == high else (here - low) / (high - low)
        share = min(1.0, max(0.0, share))
        return 1 - share if self.reverse else share

    def _linear(self, value: float) -> float:
        if self.kind == "linear":
            return value
        if self.kind == "log":
            return math.log10(max(value, self.low))
        return -math.log10(max(1 - value, SMALLEST))

    def ticks(self) -> list[tuple[float, str]]:
        """(position, text) of each tick."""
        if self.kind == "linear":
            numbers = _round_numbers(self.low, self.high)
            return [(self.at(number), f"{number / self.factor:,.6g}") for number in numbers]
        if self.kind == "log":
            return [(self.at(number), _power(number / self.factor)) for number in _decades(self.low, self.high)]
        steps = [step for step in (0.0, 0.5, *(1 - 10.0**-k for k in range(1, 7))) if self.low <= step <= self.high]
        return [(self.at(step), f"{step:.6f}".rstrip("0").rstrip(".")) for step in steps]


def axis(title: str, intervals: Iterable[Interval], factor: float = 1.0, *, top_is: str = "higher") -> Axis:
    """The scale that suits the numbers: `top_is` says which end is better and so lies at the top or right.

    Logarithmic when they are positive and span more than a factor of 20, `nines` when they are shares close to 1,
    else linear. `factor` is the value of the unit in the title (1e6 for MB).
    """
    numbers = [number for interval in intervals for number in interval]
    reverse = top_is == "lower"
    values = [number for number in numbers if number >= SMALLEST]
    if not reverse and numbers and max(numbers) <= 1 + 1e-9 and min(numbers) > 0 and max(numbers) > 0.9:
        low = 1 - 10 ** (math.log10(max(1 - min(numbers), 1e-3)) + 0.15)
        return Axis(title, "nines", low, 1 - SMALLEST if max(numbers) > 1 - 1e-5 else 1 - (1 - max(numbers)) / 1.5)
    if values and min(numbers) >= 0 and max(values) / min(values) > 20:
        return Axis(title, "log", min(values) / 2.5, max(values) * 1.6, factor, reverse)
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    pad = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(title, "linear", max(0.0, low - pad) if low >= 0 else low - pad, high + pad, factor, reverse)


def _round_numbers(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(times for times in (1, 2, 2.5, 5, 10) if (high - low) / (step * times) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [round(step * count, 12) for count in range(first, math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if math.log10(high / low) > 2.2 else (1, 2, 5)
    return [step * 10.0**exponent for exponent in exponents for step in steps if low <= step * 10.0**exponent <= high]


def _power(number: float) -> str:
    exponent = round(math.log10(number))
    if exponent < -3 and math.isclose(number, 10.0**exponent):
        return "10" + str(exponent).translate(SUPERSCRIPT)
    return f"{number:,.6g}"


@dataclass(frozen=True)
class Point:
    """One artifact in a scatter plot. `series` sets colour and shape; hollow means that no target lets it pass."""

    x: Interval
    y: Interval
    label: str
    title: str
    series: int
    hollow: bool
    ringed: bool


@dataclass(frozen=True)
class Line:
    """A gate's limit: `horizontal` at a value of y, else vertical at one of x."""

    value: float
    text: str
    horizontal: bool


def scatter(name: str, points: Sequence[Point], x: Axis, y: Axis, lines: Sequence[Line] = ()) -> str:
    """A scatter plot; `name` is what a screen reader says of it."""
    plot_x, plot_y = _placed_x(x, LEFT), _placed_y(y)
    parts = [
        *_frame_x(x, LEFT, HEIGHT),
        *_frame_y(y),
        *(_limit(line, *_limit_text(line, plot_x, plot_y)) for line in lines),
    ]
    places = [(plot_x(point.x[0]), plot_y(point.y[0])) for point in points]
    parts += [_whiskers(point, plot_x, plot_y) for point in points]
    parts += [_mark(point, *place) for point, place in zip(points, places, strict=True)]
    texts = [
        (left, top - 11, left + GLYPH * len(line.text), top + 3)
        for line in lines
        for left, top in [_limit_text(line, plot_x, plot_y)]
    ]
    parts += _labels(points, places, texts)
    return _svg(name, HEIGHT, parts)


def _placed_x(x: Axis, left: int) -> Callable[[float], float]:
    """From a value to a place in the drawing, in whole tenths."""
    return lambda value: round(left + x.at(value) * (WIDTH - left - RIGHT), 1)


def _placed_y(y: Axis) -> Callable[[float], float]:
    return lambda value: round(HEIGHT - BOTTOM - y.at(value) * (HEIGHT - TOP - BOTTOM), 1)


def _frame_x(x: Axis, left: int, height: int) -> list[str]:
    bottom, right = height - BOTTOM, WIDTH - RIGHT
    parts = [f'<path class="frame" d="M{left} {TOP}V{bottom}H{right}"/>']
    for share, text in x.ticks():
        at = round(left + share * (right - left), 1)
        parts.append(f'<path class="grid" d="M{at} {TOP}V{bottom}"/>')
        parts.append(f'<text class="tick" x="{at}" y="{bottom + 17}" text-anchor="middle">{escape(text)}</text>')
    middle = (left + right) / 2
    return [*parts, f'<text class="axis" x="{middle}" y="{height - 10}" text-anchor="middle">{escape(x.title)}</text>']


def _frame_y(y: Axis) -> list[str]:
    bottom, parts = HEIGHT - BOTTOM, []
    for share, text in y.ticks():
        at = round(bottom - share * (bottom - TOP), 1)
        parts.append(f'<path class="grid" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{escape(text)}</text>')
    turned = f'transform="translate(12 {(TOP + bottom) / 2}) rotate(-90)"'
    return [*parts, f'<text class="axis" text-anchor="middle" {turned}>{escape(y.title)}</text>']


def _limit(line: Line, left: float, top: float) -> str:
    across, upright = f"M{LEFT} {top + 5:.1f}H{WIDTH - RIGHT}", f"M{left - 5:.1f} {TOP}V{HEIGHT - BOTTOM}"
    path = across if line.horizontal else upright
    text = f'<text class="limit-text" x="{left:.1f}" y="{top:.1f}">{escape(line.text)}</text>'
    return f'<path class="limit" d="{path}"/>{text}'


def _limit_text(line: Line, plot_x: Callable[[float], float], plot_y: Callable[[float], float]) -> tuple[float, float]:
    """Where the text of a limit begins: above the right end of its line, or beside the foot."""
    if line.horizontal:
        return WIDTH - RIGHT - 5.7 * len(line.text), plot_y(line.value) - 5
    return plot_x(line.value) + 5, HEIGHT - BOTTOM - 6


def _whiskers(point: Point, plot_x: Callable[[float], float], plot_y: Callable[[float], float]) -> str:
    x, x_low, x_high = (plot_x(number) for number in point.x)
    y, y_low, y_high = (plot_y(number) for number in point.y)
    return f'<path class="whisker s{point.series}" d="M{x_low} {y}H{x_high}M{x} {y_low}V{y_high}"/>'


def shape(series: int, x: float, y: float, radius: float = 5.5) -> str:
    """Path of a series' mark, so that series differ without colour too."""
    r, wide = radius, round(radius * 1.2, 1)
    return (
        f"M{x - r} {y}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0Z",
        f"M{x - r} {y - r}h{2 * r}v{2 * r}h{-2 * r}Z",
        f"M{x} {round(y - wide, 1)}l{wide} {2 * r}h{-2 * wide}Z",
        f"M{x} {round(y - wide, 1)}l{wide} {wide}l{-wide} {wide}l{-wide} {-wide}Z",
        f"M{x} {round(y + wide, 1)}l{wide} {-2 * r}h{-2 * wide}Z",
        f"M{x - r} {y - r}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
    )[series % 6]


def _mark(point: Point, x: float, y: float) -> str:
    ring = f'<circle class="ring" cx="{x}" cy="{y}" r="10"/>' if point.ringed else ""
    kind = "hollow" if point.hollow else "filled"
    path = f'<path class="mark {kind} s{point.series}" d="{shape(point.series, x, y)}"/>'
    return f'<g class="point"><title>{escape(point.title)}</title>{ring}{path}</g>'


def _labels(points: Sequence[Point], places: Sequence[tuple[float, float]], texts: Sequence[Box]) -> list[str]:
    """Names beside the marks, each where it covers least of what is there already (marks and `texts`)."""
    radii = [10 if point.ringed else 6 for point in points]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(places, radii, strict=True)] + list(texts)
    parts = []
    for point, (x, y) in sorted(zip(points, places, strict=True), key=lambda pair: (pair[1], pair[0].label)):
        width = GLYPH * len(point.label)
        gap = 13 if point.ringed else 9
        lefts = (x + gap, x - gap - width, x - width / 2)
        options = [(lefts[0], y - 7), (lefts[1], y - 7), (lefts[2], y - gap - 14), (lefts[2], y + gap)]
        options += [(left, y + shift) for shift in (-20, 6, -32, 18) for left in lefts[:2]]
        boxes = [(left, top, left + width, top + 14) for left, top in options]
        best = min(boxes, key=lambda box: sum(_overlap(box, other) for other in taken) + _outside(box))
        taken.append(best)
        parts.append(f'<text class="label" x="{best[0]:.1f}" y="{best[1] + 11:.1f}">{escape(point.label)}</text>')
    return parts


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


def _outside(box: Box) -> float:
    over = max(0.0, LEFT - box[0]) + max(0.0, box[2] - WIDTH) + max(0.0, -box[1]) + max(0.0, box[3] - HEIGHT + BOTTOM)
    return 100 * over


@dataclass(frozen=True)
class Strip:
    """The samples of one artifact and those of the source that were taken in turn with them, in seconds."""

    label: str
    series: int
    own: Sequence[float]
    source: Sequence[float]


def strips(name: str, rows: Sequence[Strip], x: Axis) -> str:
    """One row an artifact: above the source's samples, below its own; box: middle half, bar: median, dots: samples."""
    height = TOP + ROW * len(rows) + BOTTOM
    left = round(GLYPH * max(len(row.label) for row in rows)) + 34
    place = _placed_x(x, left)
    parts = _frame_x(x, left, height)
    for number, row in enumerate(rows):
        middle = TOP + ROW * number + ROW / 2
        text = f'x="{left - 24}" y="{middle + 4}" text-anchor="end"'
        parts.append(f'<path class="mark filled s{row.series}" d="{shape(row.series, left - 13, middle, 4.5)}"/>')
        parts.append(f'<text class="row" {text}>{escape(row.label)}</text>')
        parts.append(_strip(row.source, middle - 7, "source", f"source, beside {row.label}", place))
        parts.append(_strip(row.own, middle + 7, f"s{row.series}", row.label, place))
        if number:
            parts.append(f'<path class="grid" d="M{left} {middle - ROW / 2}H{WIDTH - RIGHT}"/>')
    return _svg(name, height, parts)


def _strip(samples: Sequence[float], y: float, css: str, label: str, place: Callable[[float], float]) -> str:
    if not samples:
        return ""
    low, median, high = quantiles(samples, n=4) if len(samples) > 1 else [samples[0]] * 3
    jitter = ((-2, 1, 3, -3, 0, 2, -1)[count % 7] for count in range(len(samples)))
    dots = "".join(f"M{place(sample)} {y + shift:g}h0" for sample, shift in zip(samples, jitter, strict=True))
    box = f"M{place(low)} {y - STRIP / 2}H{place(high)}V{y + STRIP / 2}H{place(low)}Z"
    title = (
        f"{label}: median {median * 1e3:.4g} ms, middle half {low * 1e3:.4g} to {high * 1e3:.4g} ms, n = {len(samples)}"
    )
    bar = f"M{place(median)} {y - STRIP / 2 - 1}v{STRIP + 2}"
    paths = f'<path class="dots" d="{dots}"/><path class="box" d="{box}"/><path class="median" d="{bar}"/>'
    return f'<g class="strip {css}"><title>{escape(title)}</title>{paths}</g>'


def _svg(name: str, height: int, parts: Iterable[str]) -> str:
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(name)}">'
    return head + "".join(parts) + "</svg>"
