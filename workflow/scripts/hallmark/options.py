"""What an option of a variant or of a reader of data means, which values it takes, and what is said of a wrong one.

It has no option of its own, and imports nothing that a toolchain may lack: adapters are imported there too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

MANY, CLOSE = 20, 3  # names that are not listed in a message, where so many are close
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}


@dataclass(frozen=True)
class Setting:
    """What an option is for, and what a user may write: one of `values`, a number of `least` or more, or whatever is of
    the same kind as the default."""

    meaning: str
    values: tuple[Any, ...] = ()
    least: float | None = None

    def problem(self, given: Any, default: Any) -> str:
        """What is wrong with a value in the place of the default, or ''. Of a list each part is one of the values."""
        if default is not None and type(given) is not type(default) and not _is_share(given, default):
            return f"{given!r} is not {KINDS[type(default)]}, like {default!r}"
        parts = given if isinstance(given, list) else [given]
        for part in parts if self.values else ():
            if part not in self.values:
                return f"{part!r} is none of {', '.join(map(str, self.values))}"
        if self.least is not None and not (isinstance(given, int | float) and self.least <= given < math.inf):
            return f"{given!r} is not a number of {self.least:g} or more"
        return ""


def _is_share(given: Any, default: Any) -> bool:
    """A whole number where the default has a point."""
    return isinstance(default, float) and type(given) is int


def no_such(noun: str, given: str, have: Iterable[str]) -> str:
    """`no variant 'q8', have f16, q4_k_m, q8_0 (did you mean q8_0?)`; of many, only those that are close."""
    known = sorted(have)
    close = get_close_matches(given, known, CLOSE)
    if close and len(known) > MANY:
        return f"no {noun} {given!r} among {len(known)}; did you mean {' or '.join(close)}?"
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"no {noun} {given!r}, have {', '.join(known) or 'none'}{hint}"


def check(given: Mapping[str, Any], defaults: Mapping[str, Any], settings: Mapping[str, Setting]) -> list[str]:
    """What is wrong with options that a user set, a line each, beginning with the option."""
    problems = []
    for name, value in given.items():
        if name not in defaults:
            problems.append(no_such("option", name, defaults))
        elif problem := settings[name].problem(value, defaults[name]):
            problems.append(f"{name}: {problem}")
    return problems
