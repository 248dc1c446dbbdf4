"""A worker whose artifact does more work for each request: a slowdown in instructions, with no sleep. Measures nothing.

    python slowed_engine.py SHARE request.json response.json

Runs in a toolchain, for `speed_verdicts`. After each call to the runner it multiplies small matrices, so often as takes
SHARE of what the call takes on this machine when nobody is in the way. Both are timed when the model is opened, the
fastest of REPEATS each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hallmark import worker

REPEATS = 30
WORKING = ("embed", "prefill", "decode")  # the methods of a runner that a speed request calls


class Slowed:
    """A runner that does more than it has to."""

    def __init__(self, runner: Any, share: float) -> None:
        import numpy as np

        self._runner, self._share = runner, share
        self._matrix = np.eye(48, dtype=np.float32)
        self._unit = min(_timed(self._work) for _ in range(REPEATS))
        self._fastest: dict[str, float] = {}

    def _work(self) -> None:
        for _ in range(10):
            self._matrix @ self._matrix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runner, name)
        return self._slow(name, found) if name in WORKING else found

    def _slow(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def slowed(*arguments: Any) -> Any:
            started = time.perf_counter()
            answer = call(*arguments)
            took = time.perf_counter() - started
            kind = f"{name} {len(arguments[0]) if name == 'prefill' else ''}"
            self._fastest[kind] = min(took, self._fastest.get(kind, took))
            for _ in range(round(self._share * self._fastest[kind] / self._unit)):
                self._work()
            return answer

        return slowed


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run_worker(change: Callable[[Any], Any], request: Path, response: Path) -> None:
    """Be the worker of a request, whose runner is what `change` makes of the one that the request opens."""
    opener = worker.opener

    def changed(asked: worker.Request) -> worker.Open:
        opened = opener(asked)

        @contextmanager
        def opening() -> Iterator[Any]:
            with opened() as runner:
                yield change(runner)

        return opening

    worker.opener = changed
    worker.main(request, response)


if __name__ == "__main__":
    run_worker(lambda runner: Slowed(runner, float(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]))
