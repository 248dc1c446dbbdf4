"""One engine of a speed measurement, seen from the core: a process that answers one JSON line for each it is asked.

It starts and ends the process and carries messages; what they mean is between `hallmark.speed` and `hallmark.worker`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from hallmark.processes import LAST_LINES, describe_exit, die_with_parent

GOODBYE_S = 10.0
# How long OpenMP's threads (GNU's, Intel's) spin for new work before they sleep: about 2 ms. Threads that sleep at once
# slow an engine down (PyTorch on 2 CPUs: 48 ms per token instead of 32), and the usual 5 ms and more would disturb the
# other engine's turn, before which there is a pause of PAUSE_S.
SPINNING = {"GOMP_SPINCOUNT": "30000", "KMP_BLOCKTIME": "2"}
PAUSE_S = 0.005


class EngineError(RuntimeError):
    """An engine ended, failed or fell silent. The text names it and holds the last lines of its log."""


@dataclass(frozen=True)
class Command:
    """How an engine is started: `python -m hallmark.worker` of its toolchain, with a request to serve."""

    argv: Sequence[str]
    env: Mapping[str, str]


class Engine:
    """A context manager around the process, which is gone when it is left. Replies are awaited for `timeout_s`
    each, and `pause_s` goes before each message, for the sake of another engine whose turn it was."""

    def __init__(self, name: str, command: Command, log: Path, timeout_s: float, pause_s: float = PAUSE_S) -> None:
        self.name, self._log, self._timeout, self._pause = name, log, timeout_s, pause_s
        self._pending = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(command.argv),
                env={**command.env, **SPINNING},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                preexec_fn=die_with_parent(),
            )

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: by closing its input when all went well, else or if that does not help by SIGKILL."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.close()
            if error is None:
                process.wait(GOODBYE_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message, after a pause, and return the reply. Raises EngineError when none comes in time."""
        assert self._process.stdin is not None
        time.sleep(self._pause)
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
        except OSError:
            raise self._failure(self._ending()) from None
        return self.reply()

    def reply(self) -> dict[str, Any]:
        """The next line of the engine. The first comes by itself, when the model is open."""
        line = self._read_line(time.monotonic() + self._timeout)
        try:
            return dict(json.loads(line))
        except ValueError:
            raise self._failure(f"answered {line[:200]!r}, which is not JSON") from None

    def _read_line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise self._failure(f"gave no answer for {self._timeout:g} s")
            received = os.read(descriptor, 1 << 16)
            if not received:
                raise self._failure(self._ending())
            self._pending += received
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _ending(self) -> str:
        try:
            return describe_exit(self._process.wait(GOODBYE_S))
        except subprocess.TimeoutExpired:
            return "closed its output"

    def _failure(self, what: str) -> EngineError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return EngineError("\n".join([f"the engine of the {self.name}: {what}", *lines]))


def gained(times: Sequence[float], window: int) -> float:
    """By what share the fastest of the last `window` times is faster than the fastest before; endless without one."""
    before, last = times[:-window], times[-window:]
    return min(before) / min(last) - 1 if before else float("inf")
