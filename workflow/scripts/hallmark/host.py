"""What else a machine does while something is measured on it. Records only: what it means is for `disturbance` to say.

CPU seconds come from /proc/stat (proc(5)), of the CPUs that this process may run on; what the hypervisor gave to other
guests ("steal") counts as used by others. Clock frequencies are what the kernel reports; in a virtual machine they
often never change, so the pace of a small fixed loop is taken too, in CPU time, which waiting does not lengthen.
Where the system keeps no such records (macOS), others count as idle.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hallmark import processes

LOOP = 20_000  # additions, about a millisecond
STAT, CPUINFO = Path("/proc/stat"), Path("/proc/cpuinfo")
USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = range(8)


@dataclass(frozen=True)
class Moment:
    """The CPU seconds that all have used since the machine started, those that were stolen, the time, and the limits of
    CPU time that hold for this process, each with the seconds used within it."""

    busy: float
    stolen: float
    at: float
    quotas: list[tuple[float, float]]


def now() -> Moment:
    """This moment."""
    busy = stolen = 0.0
    for fields in _cpu_lines():
        ticks = [int(field) for field in fields[:8]]
        busy += sum(ticks) - ticks[IDLE] - ticks[IOWAIT]
        stolen += ticks[STEAL]
    tick = os.sysconf("SC_CLK_TCK")
    return Moment(busy / tick, stolen / tick, time.monotonic(), processes.quotas())


def _cpu_lines() -> list[list[str]]:
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
    try:
        lines = [line.split() for line in STAT.read_text(encoding="ascii").splitlines()]
    except OSError:
        return []
    return [line[1:] for line in lines if line and line[0] in mine]


def cpus() -> int:
    """CPUs that this process may run on, whatever its quota of their time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Watch:
    """Looks at the machine from when it is made: `look` now and then, `summary` at the end."""

    def __init__(self) -> None:
        self._start, self._load = now(), _load_average()
        self._frequencies: list[float] = []
        self._paces: list[float] = []
        self.look()

    def look(self) -> None:
        """Take clock frequencies and pace; the machine should otherwise rest."""
        self._frequencies += _frequencies()
        self._paces.append(min(_pace() for _ in range(3)))

    def summary(self, worked: float) -> dict[str, Any]:
        """What others used since then, in CPUs on average, when the measured processes used `worked` CPU seconds."""
        end = now()
        elapsed = max(end.at - self._start.at, 1e-9)
        others = max(0.0, end.busy - self._start.busy - worked) / elapsed
        return {
            "cpus": cpus(),
            "cpus_used_by_others": round(others, 3),
            "quotas": [
                {"cpus": quota, "cpus_used_by_others": round(max(0.0, used - before - worked) / elapsed, 3)}
                for (quota, used), (_, before) in zip(end.quotas, self._start.quotas, strict=False)
            ],
            "cpus_stolen": round((end.stolen - self._start.stolen) / elapsed, 3),
            "load_average": [self._load, _load_average()],
            "frequency_mhz": [min(self._frequencies), max(self._frequencies)] if self._frequencies else None,
            "pace": round(max(self._paces) / min(self._paces), 3),
        }


def _load_average() -> list[float]:
    return [round(load, 2) for load in os.getloadavg()]


def _frequencies() -> list[float]:
    """MHz of each CPU, empty where the kernel does not say."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]


def _pace() -> float:
    started = time.thread_time()
    total = 0
    for number in range(LOOP):
        total += number
    return time.thread_time() - started
