"""Starts a worker in its toolchain and sees it to its end. Knows nothing of stores, keys or what the worker does.

The worker, its tools and whatever else they start are one session, and none of it outlives the launcher: not a
time-out, an exception, a signal, a `kill -9` of the launcher, nor one of the Snakemake that it works for.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from hallmark import progress
from hallmark.processes import (
    LAST_LINES,
    available_memory,
    describe_exit,
    die_with_parent,
    end_with_main,
    peak_memory,
)
from hallmark.sessions import guard, kill_session
from hallmark.surroundings import worker_env

POLL_SECONDS = 0.25
LONGEST_LINE = 500  # of a line in an error message; the log has all of it
FULL_DISK_BYTES = 16 * 2**20
OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "Cannot allocate memory", "can't allocate memory")

OnProgress = Callable[[int, int, str], None]


class WorkerError(RuntimeError):
    """A worker failed. The text says how, holds the last lines of its log, and what to do where that is known."""


@dataclass
class _Worker:
    """A started worker: its process, the last lines it wrote, and whether it is over."""

    process: subprocess.Popen[bytes]
    tail: deque[str]
    pending: bytes = b""


def launch(
    toolchain: Path,
    request: Mapping[str, Any],
    *,
    log: Path,
    out: Path,
    timeout_s: float,
    on_progress: OnProgress = lambda *_: None,
) -> dict[str, Any]:
    """Run `python -m hallmark.worker` of the toolchain in the folder `toolchain` on a request; return its response.

    `out` is the job's temporary folder; what the launcher puts there (request, response, the worker's TMPDIR and home)
    is removed again. What the worker prints is added to `log`. The response gets a field `process`: {"seconds",
    "cpu_seconds", "peak_memory" in bytes}. `options.threads` of the request is what OpenMP and the like may use.

    Raises WorkerError when the worker fails, runs longer than `timeout_s` or leaves no response; SystemExit on SIGTERM.
    """
    with _scratch(out) as scratch, _signals_raise():
        end_with_main()
        ask, answer = scratch / "request.json", scratch / "response.json"
        ask.write_text(json.dumps(request), encoding="utf-8")
        started, kills = time.monotonic(), _out_of_memory_kills()
        with log.open("ab") as lines, _started(toolchain, [ask, answer], request, scratch) as worker:
            in_time = _follow(worker, lines, started + timeout_s, on_progress)
            _take(worker, b"\n" if worker.pending else b"", lines, on_progress)
            usage = _end(worker)
        if not in_time:
            raise WorkerError(_message(worker, f"stopped after {timeout_s:g} s, its time limit", log, []))
        if worker.process.returncode != 0 or not answer.exists():
            notes = [*_disk_note(out, worker), *_memory_note(worker, kills, peak_memory(usage))]
            raise WorkerError(_message(worker, _ending(worker), log, notes))
        response: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    response["process"] = {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_memory": peak_memory(usage),
    }
    return response


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A folder below `out` for what only the launcher and the worker see."""
    scratch = out / ".worker"
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that what is open is closed. SIGINT is KeyboardInterrupt already."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; the guard ends the worker then
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _started(toolchain: Path, files: list[Path], request: Mapping[str, Any], scratch: Path) -> Iterator[_Worker]:
    """The worker's process and its guard; both are gone when the block is left, however it is left."""
    with guard() as watch:
        process = subprocess.Popen(
            [toolchain / "bin/python", "-m", "hallmark.worker", *files],
            cwd=scratch,
            env=worker_env(toolchain, request.get("options", {}).get("threads"), scratch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o022,
            preexec_fn=die_with_parent(watch),
        )
        worker = _Worker(process, deque(maxlen=LAST_LINES))
        try:
            yield worker
        finally:
            if process.returncode is None:
                _end(worker)
            if process.stdout:
                process.stdout.close()


def _follow(worker: _Worker, log: BinaryIO, deadline: float, on_progress: OnProgress) -> bool:
    """Copy the worker's lines to the log until it ends; False when it has not by the deadline (time.monotonic)."""
    assert worker.process.stdout is not None
    descriptor = worker.process.stdout.fileno()
    while time.monotonic() < deadline:
        if select.select([descriptor], [], [], POLL_SECONDS)[0]:
            received = os.read(descriptor, 1 << 16)
            if received:
                _take(worker, received, log, on_progress)
                continue
            return _wait(worker, deadline)
        if _has_ended(worker):  # but something it started still holds its output open
            return True
    return False


def _take(worker: _Worker, received: bytes, log: BinaryIO, on_progress: OnProgress) -> None:
    *lines, worker.pending = (worker.pending + received).split(b"\n")
    for line in lines:
        shown = line.rstrip(b"\r").rpartition(b"\r")[2]  # of a progress bar, what it showed last
        text = shown.decode("utf-8", errors="replace")
        report = progress.parse(text)
        if report:
            on_progress(*report)
        else:
            log.write(shown + b"\n")
            worker.tail.append(text[:LONGEST_LINE])
    log.flush()


def _wait(worker: _Worker, deadline: float) -> bool:
    while not _has_ended(worker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _has_ended(worker: _Worker) -> bool:
    """Whether the process is over; it stays a zombie, so its session's number stays taken until that is killed."""
    return os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(worker: _Worker) -> resource.struct_rusage:
    """Kill what is left of the worker's session and return what the worker, with all it waited for, has used."""
    kill_session(worker.process.pid)
    _, status, usage = os.wait4(worker.process.pid, 0)
    worker.process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def _ending(worker: _Worker) -> str:
    code = worker.process.returncode
    return describe_exit(code) if code else "exit code 0, but it left no response"


def _message(worker: _Worker, what: str, log: Path, notes: list[str]) -> str:
    lines = (line for line in worker.tail if line.strip())
    return "\n".join([f"the worker failed: {what}", *lines, *notes, f"log: {log}"])


def _disk_note(out: Path, worker: _Worker) -> list[str]:
    free = shutil.disk_usage(out).free
    if free > FULL_DISK_BYTES and not any("No space left on device" in line for line in worker.tail):
        return []
    return [f"The disk is full: {free / 2**20:.0f} MiB are free where {out} lies. Free some space and run again."]


def _memory_note(worker: _Worker, kills: int | None, peak: int) -> list[str]:
    """Whether memory ran out: the kernel says so, a message does, or it was SIGKILL and the kernel says nothing."""
    now = _out_of_memory_kills()
    killed = worker.process.returncode == -signal.SIGKILL if now is None or kills is None else now > kills
    if not killed and not any(sign in line for sign in OUT_OF_MEMORY for line in worker.tail):
        return []
    had, free = peak / 2**30, available_memory() / 2**30
    return [
        f"Memory ran out, it seems: the worker had {had:.1f} GiB at its peak, and {free:.1f} GiB are available now."
    ]


def _out_of_memory_kills() -> int | None:
    """How many processes the kernel has killed for memory since it booted; None where it does not say."""
    try:
        counters = Path("/proc/vmstat").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), None)
