"""Child programs, and what of this machine they may use. Knows nothing of toolchains, requests or stores.

Runs in the core and in every toolchain, so it needs nothing but the standard library and `hallmark.sessions`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path

from hallmark.sessions import guard, kill_session

LAST_LINES = 20
PR_SET_PDEATHSIG = 1
MAIN = "HALLMARK_MAIN_PID"
POLL_SECONDS = 0.5
GRACE_SECONDS = 1.0
ROOT = Path("/")


class ToolError(RuntimeError):
    """A child program failed: `argv`, `code` (negative: the signal that ended it) and its last lines, `tail`."""

    def __init__(self, argv: Sequence[str | os.PathLike[str]], code: int, tail: Sequence[str]) -> None:
        self.argv = [os.fspath(word) for word in argv]
        self.code = code
        self.tail = "\n".join(tail)
        command = " ".join(self.argv)
        super().__init__(f"{Path(self.argv[0]).name}: {describe_exit(code)}\ncommand: {command}\n{self.tail}".rstrip())


def describe_exit(code: int) -> str:
    """A child's exit code in words: `exit code 1`, or `ended by SIGKILL` for -9."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def to_stderr(line: str) -> None:
    """Where the lines of a tool go unless told otherwise: to standard error, which a worker's log holds."""
    print(line, file=sys.stderr, flush=True)


def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    on_line: Callable[[str], None] = to_stderr,
    own_session: bool = False,
) -> str:
    """Run a program to its end and return its standard output and error, mixed, as text.

    Each line goes to `on_line` as it comes (a carriage return ends a line too, so progress bars pass). Raises
    ToolError when the program exits with anything but 0. The child dies with the calling process, and when the call
    is interrupted; with `own_session` so does all that it started (a worker's tools are in the worker's already).
    """
    with guard() if own_session else nullcontext() as watch:
        child = subprocess.Popen(
            [os.fspath(word) for word in argv],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=own_session,
            preexec_fn=die_with_parent(watch),
        )
        lines, code = _follow(child, on_line, kill_session if own_session else _kill)
    if code != 0:
        raise ToolError(argv, code, deque(lines, LAST_LINES))
    return "".join(f"{line}\n" for line in lines)


def _follow(
    child: subprocess.Popen[str], on_line: Callable[[str], None], kill: Callable[[int], None]
) -> tuple[list[str], int]:
    """The lines and the exit code of a child; when that is interrupted, it is killed first."""
    assert child.stdout is not None
    lines: list[str] = []
    try:
        with child.stdout as stream:
            for line in stream:
                lines.append(line.rstrip("\n"))
                on_line(lines[-1])
        return lines, child.wait()
    except BaseException:
        kill(child.pid)
        child.wait()
        raise


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _load_prctl() -> Callable[[int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None, use_errno=True).prctl
    function.argtypes = [ctypes.c_int, ctypes.c_ulong]
    function.restype = ctypes.c_int
    return function


# Loaded here, because between fork and exec nothing may be imported or looked up: another thread may hold a lock.
_PRCTL = _load_prctl()


def die_with_parent(guard: int | None = None) -> Callable[[], None]:
    """A `preexec_fn` for subprocess.Popen: the child gets SIGKILL when the calling *thread* ends, however it ends.

    The thread, not the process: that is the kernel's rule (prctl(2), PR_SET_PDEATHSIG), so start children from a thread
    that outlives them. Elsewhere than on Linux there is no such thing. With `guard` (see `sessions.guard`) the child,
    which must lead a session of its own, puts that under guard first.
    """
    prctl, parent = _PRCTL, os.getpid()

    def prepare() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if guard is not None:
            os.write(guard, b"%d\n" % os.getpid())
        if os.getppid() != parent:  # it died before the lines above
            os._exit(1)

    return prepare


def identity(pid: int) -> str:
    """A process's name that no later process can have: `pid:start time` (the time is empty where there is no /proc)."""
    return f"{pid}:{_start_time(pid)}"


def is_alive(process: str) -> bool:
    """Whether the process of that `identity` still runs. A zombie does not."""
    pid, _, started = process.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, so it exists
    return _start_time(int(pid)) == started


def _start_time(pid: int) -> str:
    """Field 22 of /proc/<pid>/stat, in clock ticks since boot; empty for a zombie and where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return "" if fields[0] in "ZX" else fields[19]


@cache
def end_with_main() -> None:
    """From now on end this process within a second or two of the main one's end, also when that was killed.

    The main process is the one whose `identity` is in HALLMARK_MAIN_PID, without that variable the parent. First
    SIGTERM, so that what is open can be closed; SIGKILL if that does not help.
    """
    main = os.environ.get(MAIN) or identity(os.getppid())

    def watch() -> None:
        while is_alive(main):
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-main", daemon=True).start()


def usable_cpus(root: Path = ROOT) -> int:
    """CPUs this process may use: its affinity, less where a cgroup (v1 or v2) limits the CPU time. At least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _cgroups(root, "cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            count = min(count, max(1, int(quota)))
    return count


def _cpu_quota(folder: Path) -> float | None:
    """CPUs' worth of time that the cgroup allows, None without a limit."""
    limit = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
    if len(limit) != 2 or not limit[0].isdigit() or not int(limit[1]):  # "max" and "-1" are no limit
        return None
    return int(limit[0]) / int(limit[1])


def quotas(root: Path = ROOT) -> list[tuple[float, float]]:
    """(CPUs' worth of time that it allows, CPU seconds used in it so far) of each cgroup that limits this process."""
    found = []
    for folder in _cgroups(root, "cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            stat = dict(line.split() for line in _lines(folder / "cpu.stat"))
            used = int(stat.get("usage_usec", 0)) / 1e6 or sum(map(int, _words(folder / "cpuacct.usage"))) / 1e9
            found.append((quota, used))
    return found


def available_memory(root: Path = ROOT) -> int:
    """Bytes that can be used without swapping: what the system has available, less where a cgroup limits it."""
    available = _system_memory(root)
    for folder in _cgroups(root, "memory"):
        room = _memory_room(folder)
        if room is not None:
            available = min(available, room)
    return available


def _system_memory(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _memory_room(folder: Path) -> int | None:
    """Bytes left in the cgroup, counting cached files that can be dropped; None without a limit."""
    limit = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
    used = _words(folder / "memory.current") or _words(folder / "memory.usage_in_bytes")
    if not limit or not used or not limit[0].isdigit():
        return None
    cached = dict(line.split() for line in _lines(folder / "memory.stat"))
    reclaimable = int(cached.get("total_inactive_file", cached.get("inactive_file", 0)))
    return max(0, int(limit[0]) - int(used[0]) + reclaimable)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The folders whose limits for `controller` hold for this process: its own cgroup's and those above it.

    In a container the path in /proc/self/cgroup may be the host's; then only the mount's root exists, and counts.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mount in (controllers, controller) if controllers else ("", "unified"):
            top = root / "sys/fs/cgroup" / mount
            below = top / path.strip("/")
            yield from (folder for folder in (below, *below.parents) if folder.is_dir() and folder.is_relative_to(top))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def peak_memory(usage: resource.struct_rusage | None = None) -> int:
    """Peak resident bytes: of `usage` (from os.wait4: a child and what it waited for), else of this process.

    A child's number is never below what its parent held when it was started: Linux counts the time before exec.
    """
    if usage is not None:
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    for line in _lines(Path("/proc/self/status")):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return peak_memory(resource.getrusage(resource.RUSAGE_SELF))
