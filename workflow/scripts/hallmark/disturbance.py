"""How far what else a machine did can have moved the times measured on it. Measures nothing, and never loosens a gate.

A speed gate is judged on its interval after that has been widened by two factors, each 1 on a quiet machine:

    crowding   c = (threads + others - cpus) / threads is the share of their CPUs that the engines had to do without, if
               everything else used `others` CPUs on average, the hypervisor's other guests included: of the machine's,
               or of those that a container's quota allows, whichever is worse. Up to QUIET it is taken for none.
               Above, an engine takes up to 1 / (1 - c) times as long, and the square of that since its
               threads wait for the slowest of them, which may be hit more than its share. Above CROWDED nothing is
               believed. Ratios of CPU time, which does not run while a thread waits, are widened by 1 + c / 3, for lost
               caches and for engines that spin. (With 1.5 to 1.8 of 2 CPUs taken, the median latency of OpenVINO,
               llama.cpp and PyTorch was 1.2 to 5.6 times the fastest, their median CPU time 1.06 to 1.26 times.)
    warm-up    1 + the gain in pace that the last warm-up rounds still showed, if the engines had not settled

A ratio may be off in both directions and is widened in both. A time of one engine can only have come out too long and a
rate too low, so they are widened towards the better side: `fail` may become `inconclusive`, while `pass` stays, since a
quiet machine would have done better still. For them the spread of the machine's pace counts as well: a CPU that ran
slower for a while cancels out of a ratio, not out of a time. A difference of two times may have come out too small as
well, when what is taken off was lengthened, so it says nothing on a disturbed machine. What is missed: others who fit
on CPUs of their own and still take memory bandwidth, or clock, from the engines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hallmark.tasks import Metric

QUIET = 0.05
CROWDED = 0.8
STEADY = 1.05  # spread of the pace, slowest over fastest, up to which it is taken for none


@dataclass(frozen=True)
class Disturbance:
    """The factors by which ratios by the clock, times and rates, and ratios of CPU time may be off; `why` says what was
    at work, '' if nothing."""

    ratio: float = 1.0
    time: float = 1.0
    cpu: float = 1.0
    why: str = ""

    def widen(self, low: float, high: float, metric: Metric) -> tuple[float, float]:
        """The interval of a positive number that holds what a quiet machine would have said."""
        if metric.timed == "difference":
            return (low, high) if self.time == 1 else (0.0, math.inf)
        if metric.unit == "":
            factor = self.cpu if metric.timed == "cpu" else self.ratio
            return low / factor, high * factor
        return (low / self.time, high) if metric.better == "lower" else (low, high * self.time)


def of(conditions: Mapping[str, Any]) -> Disturbance:
    """What the conditions of a speed measurement say. Without a record of the host nothing is widened."""
    host, reasons, factor, cpu = conditions.get("host"), [], 1.0, 1.0
    if host is None:
        return Disturbance()
    threads, others, cpus = (float(host[name]) for name in ("threads", "cpus_used_by_others", "cpus"))
    # In a container that may use two CPUs' worth of 64, its other processes take from those two, wherever they run.
    rooms = [(cpus, others), *((quota["cpus"], quota["cpus_used_by_others"]) for quota in host.get("quotas", []))]
    cpus, others = max(rooms, key=lambda room: room[1] - room[0])
    crowding = (threads + others - cpus) / threads
    if crowding > QUIET:
        factor, cpu = math.inf if crowding > CROWDED else (1 - crowding) ** -2, 1 + crowding / 3
        reasons.append(f"others used {others:.2g} of {cpus:g} CPUs")
    if not conditions.get("settled", True):
        factor, cpu = (each * (1 + float(conditions["warmup_gain"])) for each in (factor, cpu))
        reasons.append("the engines had not settled")
    pace = float(host["pace"])
    if pace > STEADY:
        reasons.append(f"the CPU's pace changed by {pace - 1:.0%}")
    return Disturbance(factor, factor * (pace if pace > STEADY else 1.0), cpu, " and ".join(reasons))
