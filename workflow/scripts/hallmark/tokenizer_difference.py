"""Gives a difference between two tokenizers a name: where in the text it lies, and what is there. Encodes nothing.

The name says what the text or the ids have at that place. It does not prove a cause.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

# Kinds, the gravest first: a string with several differences is of the gravest. What each means goes into the docs.
KINDS = {
    "failed": "strings that cannot be encoded at all",
    "boundary": "a token before or after the text is missing or too many (BOS, EOS)",
    "special": "a special or added token is not recognised, or recognised where the source does not",
    "other": "none of the kinds below and above",
    "whitespace": "at white space",
    "unknown": "one has the unknown token where the other has not",
    "control": "at control, private, unassigned or replacement characters",
    "numerals": "at digits and numerals of any script, or next to one",
    "normalisation": "at combining marks and characters that have another normal form: accents, Hangul",
}
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
LONGEST = 2000  # ids; beyond, everything between the first and the last difference is one region


@dataclass(frozen=True)
class Added:
    """The source's special and added tokens, by id and by text, and the id of its unknown token, if it has one."""

    ids: frozenset[int]
    texts: Sequence[str]
    unknown: int | None


@dataclass(frozen=True)
class Row:
    """A text with the ids it should have; `spans` say where in the text each comes from, (0, 0) for none."""

    text: str
    ids: list[int]
    spans: list[tuple[int, int]]
    cut: bool = False

    @staticmethod
    def of(row: Mapping[str, Any], special: bool, limit: int | None) -> Row:
        """From what is stored. `limit`: the runtime cuts to so many tokens, special ones included."""
        bare, spans = row["bare"], [tuple(span) for span in row["spans"]]
        spans = spans if len(spans) == len(bare) else [(0, len(row["text"]))] * len(bare)
        if not special:
            return Row(row["text"], bare[:limit], spans[:limit])
        start = _find(row["ids"], bare)
        if start is None:
            return Row(row["text"], row["ids"][:limit], [(0, len(row["text"]))] * len(row["ids"][:limit]))
        before, after = row["ids"][:start], row["ids"][start + len(bare) :]
        cut = limit is not None and len(row["ids"]) > limit
        if limit is not None and cut:
            kept = max(0, limit - len(before) - len(after))
            bare, spans = bare[:kept], spans[:kept]
        around = ([(0, 0)] * len(before), [(len(row["text"]),) * 2] * len(after))
        return Row(row["text"], [*before, *bare, *after], [*around[0], *spans, *around[1]], cut)


def _find(ids: Sequence[int], part: Sequence[int]) -> int | None:
    """Where `part` stands in `ids`, None when it does not."""
    for start in range(len(ids) - len(part) + 1):
        if ids[start : start + len(part)] == part:
            return start
    return None


def name_difference(expected: Row, got: Sequence[int], added: Added) -> tuple[str, str]:
    """The kind (see KINDS) of the gravest difference, and the piece of text at that place."""
    regions = _regions(expected.ids, got)
    if expected.cut and len(regions) > 1:
        del regions[-1]  # where a text is cut, an earlier difference moves the end
    found = [_name(region, expected, got, added) for region in regions]
    order = list(KINDS)
    return min(found, key=lambda kind: order.index(kind[0]))


Region = tuple[int, int, int, int]


def _regions(expected: Sequence[int], got: Sequence[int]) -> list[Region]:
    """Ranges of `expected` and `got` that differ."""
    first = next(
        (n for n, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), min(len(expected), len(got))
    )
    room = min(len(expected), len(got)) - first
    last = next((n for n in range(room) if expected[-1 - n] != got[-1 - n]), room)
    middle = (first, len(expected) - last, first, len(got) - last)
    if max(middle[1] - first, middle[3] - first) > LONGEST:
        return [middle]
    matcher = SequenceMatcher(None, expected[first : middle[1]], got[first : middle[3]], autojunk=False)
    return [
        (first + a, first + b, first + c, first + d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"
    ] or [middle]


def _name(region: Region, expected: Row, got: Sequence[int], added: Added) -> tuple[str, str]:
    start, end, got_start, got_end = region
    wanted, there = expected.ids[start:end], list(got[got_start:got_end])
    text = _text(expected, start, end)
    at_edge = (start == 0 and got_start == 0) or (end == len(expected.ids) and got_end == len(got))
    alike = {*wanted, *there} - {added.unknown}
    if at_edge and not text and alike and alike <= added.ids:
        return "boundary", text
    if (set(wanted) ^ set(there)) & (added.ids - {added.unknown}):
        return "special", text
    # A control that one drops and the other does not shows at its neighbour; so does a mark that has no token.
    near = _text(expected, start, end, beyond=1)
    if any(_is_control(character) for character in near):
        return "control", text
    if any(unicodedata.category(character).startswith("N") for character in near):
        return "numerals", text
    marks = any(unicodedata.category(character).startswith("M") for character in near)
    if marks or any(_has_other_form(character) for character in (text if text.strip() else near)):
        return "normalisation", text
    if added.unknown is not None and added.unknown in {*expected.ids[max(0, start - 1) : end + 1], *there}:
        return "unknown", text
    if not text.strip() or "  " in text or any(character.isspace() and character != " " for character in text):
        return "whitespace", text
    return "other", text


def _text(row: Row, start: int, end: int, beyond: int = 0) -> str:
    """The text of the ids from `start` to `end`; where there are none, what lies between their neighbours.

    `beyond` adds so many characters on both sides.
    """
    if start < end:
        spans = row.spans[start:end]
        left, right = min(span[0] for span in spans), max(span[1] for span in spans)
    else:
        left = row.spans[start - 1][1] if start else 0
        right = row.spans[end][0] if end < len(row.spans) else len(row.text)
    return row.text[max(0, left - beyond) : right + beyond]


def _is_control(character: str) -> bool:
    kind = unicodedata.category(character)
    return character == "\ufffd" or (kind in ("Cc", "Cf", "Co", "Cn", "Cs") and character not in "\t\n\r")


def _has_other_form(character: str) -> bool:
    """Whether any of its normal forms is another text."""
    return not character.isspace() and any(unicodedata.normalize(form, character) != character for form in FORMS)
