"""How a job says how far it is. It does not draw anything: reports go to whoever listens in this process.

In a worker nobody does: a report is a line `@progress {"done": 3, "of": 10, "what": "blocks"}` on standard output,
which the launcher reads. Every other line is log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

PREFIX = "@progress "
Item = TypeVar("Item")


_listeners: list[Callable[[int, int, str], None]] = []


@contextmanager
def heard_by(listener: Callable[[int, int, str], None]) -> Iterator[None]:
    """Hand reports of this process to a listener instead of printing them."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def report(done: int, of: int, what: str) -> None:
    """Say that `done` of `of` things (`what`, plural) are done."""
    if _listeners:
        _listeners[-1](done, of, what)
        return
    # In one write with its end: what another thread or a child prints must not come between.
    sys.stdout.write(PREFIX + json.dumps({"done": done, "of": of, "what": what}) + "\n")
    sys.stdout.flush()


def parse(line: str) -> tuple[int, int, str] | None:
    """What a line of a worker reports, as `report` was given it; None for any other, one that was mixed up included."""
    if not line.startswith(PREFIX):
        return None
    try:
        said = json.loads(line.removeprefix(PREFIX))
        return int(said["done"]), int(said["of"]), str(said["what"])
    except (ValueError, KeyError, TypeError):
        return None


def track(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, reporting after each."""
    of = total if total is not None else len(items) if isinstance(items, Sized) else 0
    for done, item in enumerate(items, 1):
        yield item
        report(done, of, what)
