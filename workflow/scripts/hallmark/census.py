"""An artifact's weights against its source's: what is missing, misshapen, changed. Knows no format.

A format says which stored tensor stands for which of the source (`Pair`), and how to read both; this compares them one
at a time. What a format cannot pair, or only might have, is never counted as a fault: it is listed, and its share of
the weights is a number of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hallmark.weight_error import Difference, Grid, Read, compare

SHOWN = 20  # names written out for people
# Largest error of a sound tensor and of one of its rows, in units of what its type explains (see weight_error). The
# values seen in sound artifacts, and in broken ones, stand in docs/gates.md.
FLOAT_LIMITS, INTEGER_LIMITS, WEIGHED_LIMITS = (2.0, 8.0), (1.5, 3.0), (4.0, 8.0)


@dataclass(frozen=True)
class Stored:
    """A weight of an artifact: `shape` is rows and columns as the source has them, `type` its name for people."""

    name: str
    shape: tuple[int, int]
    type: str
    grid: Grid
    read: Read


@dataclass(frozen=True)
class Pair:
    """A stored weight and what it was made from: the source's tensor in each layout it may have been given.

    `certain` says that one of the layouts is known to be right; if not, a difference proves nothing.
    """

    stored: Stored
    source: str
    shape: tuple[int, int]
    layouts: Sequence[Read]
    certain: bool = True


@dataclass
class Census:
    """What a comparison found. Each list names tensors; `errors` are by type; elements tell the share compared."""

    missing: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    matched: list[str] = field(default_factory=list)
    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    compared: int = 0
    elements: int = 0

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "missing_tensors": len(self.missing),
            "surplus_tensors": len(self.surplus),
            "shape_mismatches": len(self.misshapen),
            "weight_mismatches": len(self.changed),
            "uncompared_share": 1 - self.compared / self.elements if self.elements else 1.0,
        }

    @property
    def facts(self) -> dict[str, Any]:
        """The lists that are not empty, cut to what people read, and the errors by type."""
        lists = {
            "missing_tensors": self.missing,
            "surplus_tensors": self.surplus,
            "shape_mismatches": self.misshapen,
            "weight_mismatches": self.changed,
            "not_compared": self.unknown,
            "matched_by_content": self.matched,
        }
        shown = {name: shorten(found) for name, found in lists.items() if found}
        return {**shown, "weight_errors": self.errors}

    def add(self, pair: Pair) -> None:
        """Compare one pair and take down what is found."""
        stored, size = pair.stored, pair.stored.shape[0] * pair.stored.shape[1]
        self.elements += size
        if stored.shape != pair.shape:
            told = f"{stored.name}: {list(stored.shape)}, {pair.source} has {list(pair.shape)}"
            (self.misshapen if pair.certain else self.unknown).append(told)
            return
        limits = limits_of(stored.grid)
        found = [compare(layout, stored.read, stored.shape, stored.grid) for layout in pair.layouts[:1]]
        for layout in pair.layouts[1:]:
            if not found[-1].exceeds(limits):
                break
            found.append(compare(layout, stored.read, stored.shape, stored.grid))
        best = min(found, key=lambda difference: (difference.exceeds(limits), difference.ratio))
        if best.exceeds(limits) and not pair.certain:
            self.unknown.append(f"{stored.name}: may hold {pair.source} in a layout that is not known")
            return
        self.compared += size
        if best.exceeds(limits):
            self.changed.append(_told(pair, best))
        else:
            self._take_down(stored.type, best)

    def leave(self, names: Iterable[tuple[str, int]]) -> None:
        """Take down what cannot be read, with its elements."""
        for name, elements in names:
            self.unknown.append(name)
            self.elements += elements

    def _take_down(self, kind: str, found: Difference) -> None:
        row = self.errors.setdefault(kind, {"tensors": 0, "ratio": 0.0, "worst_row": 0.0, "relative": 0.0})
        row["tensors"] += 1
        for name in ("ratio", "worst_row", "relative"):
            row[name] = max(row[name], round(getattr(found, name), 6))


def _told(pair: Pair, found: Difference) -> str:
    return (
        f"{pair.stored.name} ({pair.stored.type}) is not {pair.source}: error {found.relative:.3g} of the weights, "
        f"{found.ratio:.3g} times what the type explains, {found.worst_row:.3g} in the worst row"
    )


def limits_of(grid: Grid) -> tuple[float, float]:
    """The limits of a tensor, and of a row, on a grid."""
    if grid.kind != "integer":
        return FLOAT_LIMITS
    return WEIGHED_LIMITS if grid.weighed else INTEGER_LIMITS


def weigh(pairs: Iterable[Pair]) -> Census:
    """Compare all pairs, one at a time."""
    census = Census()
    for pair in pairs:
        census.add(pair)
    return census


def shorten(names: Sequence[str]) -> list[str]:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN
    return [*names[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def other_types(elements: Mapping[str, int], wanted: Iterable[str]) -> tuple[float, dict[str, int]]:
    """Share of the weights whose type begins with none of `wanted`, and how many elements each such type has."""
    others = {kind: count for kind, count in elements.items() if not kind.startswith(tuple(wanted))}
    total = sum(elements.values())
    return (sum(others.values()) / total if total else 1.0), others
