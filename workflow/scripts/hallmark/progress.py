"""How a worker says how far it is. It does not draw anything: the launcher passes the lines on to the console.

A line `@progress {"done": 3, "of": 10, "what": "blocks"}` on standard output is a report; every other line is log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

PREFIX = "@progress "
Item = TypeVar("Item")


def report(done: int, of: int, what: str) -> None:
    """Say that `done` of `of` things (`what`, plural) are done."""
    print(PREFIX + json.dumps({"done": done, "of": of, "what": what}), flush=True)


def track(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, reporting after each."""
    of = total if total is not None else len(items) if isinstance(items, Sized) else 0
    for done, item in enumerate(items, 1):
        yield item
        report(done, of, what)
