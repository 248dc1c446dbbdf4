"""The speed of an artifact against its source on the same machine: two engines, taking turns. Judges nothing.

Each engine is a process of its own (`hallmark.worker`, action `serve`), because engines in one process starve one
another. Only one works at a time; the other blocks on its standard input. Round i sends the same request to both,
first to the artifact in even rounds and first to the source in odd ones, so that a machine that slows down slows
both. Every round has another request, so that no cache of an engine can answer for it. Times are taken inside the
engine, around the request.

Before the timed rounds come rounds that are thrown away, until the engines have settled: of both, the last
`warmup_window` times lie within `warmup_tolerance` of one another (largest over smallest), or until `warmup_rounds`.
After them each engine closes and opens its model `loads` times, in turns too. Peak memory is read before that.

No rate is refused for being high: what memory bandwidth allows cannot be said without knowing which weights a step
reads (caches, embeddings, experts). Instead every decoded token is needed for the next, prompts never repeat, and the
CPU time that the waiting engine and the rest of the machine used meanwhile is recorded: a spinning thread pool shows.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hallmark import statistics, tasks
from hallmark.devices import hardware_class
from hallmark.engine import Command, Engine
from hallmark.processes import end_with_main, usable_cpus
from hallmark.progress import report
from hallmark.statistics import Estimate
from hallmark.tasks import Metric, Option

SIDES = ("artifact", "source")
MB = 1_000_000
Times = dict[str, float]
OnProgress = Callable[[int, int, str], None]

COMMON_OPTIONS: dict[str, Option] = {
    "warmup_tolerance": Option(0.1, "settled times differ by at most this share"),
    "loads": Option(5, "timed openings of the model by each engine"),
    "timeout_s": Option(300, "an engine that is silent for so long has failed"),
}
COMMON_METRICS = {
    "load_s": Metric(
        "speed", "s", "lower", "opening the model up to its first answer, files cached and libraries loaded"
    ),
    "source_load_s": Metric("speed", "s", "lower", "the same of the source on PyTorch"),
    "load_ratio": Metric("speed", "", "higher", "how many times faster than the source to open"),
    "peak_memory_mb": Metric(
        "speed", "MB", "lower", "peak resident memory of the engine, libraries and mapped files included"
    ),
    "source_peak_memory_mb": Metric("speed", "MB", "lower", "the same of the source on PyTorch"),
    "memory_ratio": Metric("speed", "", "higher", "the source's peak memory over the artifact's"),
    "file_size_mb": Metric("speed", "MB", "lower", "size of the artifact's files"),
}


def measure(
    artifact: Command,
    source: Command,
    task: str,
    reference: Path,
    options: Mapping[str, Any],
    log: Path,
    on_progress: OnProgress = report,
) -> tuple[dict[str, Estimate], dict[str, list[Times]], dict[str, Any]]:
    """Measure both engines in turns. Returns the metrics, the raw samples and the conditions.

    `options` are the task's, with `threads`; what the engines print goes to the end of `log`. Samples are seconds by
    round: `artifact`, `source`, the same with `_warmup` and `_load`. Raises EngineError when an engine fails or
    hangs; both processes are gone then, as they are at the end.
    """
    end_with_main()
    module = tasks.get(task)
    rounds, most = int(options["rounds"]), int(options["warmup_rounds"])
    requests = module.requests(reference, options, most + rounds)
    first = module.requests(reference, {**options, **module.FIRST_ANSWER}, 1)[0]
    before = {"load_average_before": list(os.getloadavg())}
    with ExitStack() as stack:
        commands = zip(SIDES, (artifact, source), strict=True)
        engines = [
            stack.enter_context(Engine(name, command, log, float(options["timeout_s"]))) for name, command in commands
        ]
        session = _Session(engines, most + rounds + int(options["loads"]), on_progress)
        settled = session.warm_up(requests[:most], int(options["warmup_window"]), float(options["warmup_tolerance"]))
        session.time_rounds(requests[most:])
        states = {engine.name: engine.ask({"do": "state"}) for engine in session.engines}
        session.time_loads(first, int(options["loads"]))
        conditions = before | session.conditions(states) | {"settled": settled, "options": dict(options)}
    metrics = module.speed(session.samples["artifact"], session.samples["source"])
    return metrics | _common(session, states), session.samples, conditions


class _Session:
    """Both engines at work: takes turns, keeps the samples and what happened around them."""

    def __init__(self, engines: Sequence[Engine], steps: int, on_progress: OnProgress) -> None:
        self.engines, self._steps, self._done, self._on_progress = engines, steps, 0, on_progress
        self.samples: dict[str, list[Times]] = {
            f"{side}{part}": [] for part in ("", "_warmup", "_load") for side in SIDES
        }
        self._waiting = {side: [0.0, 0.0] for side in SIDES}  # seconds waited, CPU seconds used meanwhile
        self._worked = 0.0
        self.opened = {engine.name: engine.reply() for engine in engines}
        self._began, self._busy = time.monotonic(), _busy_cpu_seconds()

    def _turn(self, number: int, message: Mapping[str, Any], part: str) -> None:
        for engine in self.engines if number % 2 == 0 else reversed(self.engines):
            answer = engine.ask(message)
            self.samples[f"{engine.name}{part}"].append(answer["seconds"])
            self._waiting[engine.name][0] += answer["waited_s"]
            self._waiting[engine.name][1] += answer["waited_cpu_s"]
            self._worked += answer["waited_cpu_s"] + answer["cpu_s"]
        self._done += 1
        self._on_progress(self._done, self._steps, "rounds")

    def warm_up(self, requests: Sequence[Any], window: int, tolerance: float) -> bool:
        """Rounds until both engines have settled, at most one for each request. Returns whether they have."""
        for number, request in enumerate(requests):
            self._turn(number, {"do": "sample", "request": request}, "_warmup")
            if all(_has_settled(self.samples[f"{side}_warmup"], window, tolerance) for side in SIDES):
                self._steps -= len(requests) - number - 1
                return True
        return False

    def time_rounds(self, requests: Sequence[Any]) -> None:
        for number, request in enumerate(requests):
            self._turn(number, {"do": "sample", "request": request}, "")

    def time_loads(self, request: Any, count: int) -> None:
        for number in range(count):
            self._turn(number, {"do": "load", "request": request}, "_load")

    def conditions(self, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The machine, the engines, and who else used the CPUs while they worked."""
        elapsed = max(time.monotonic() - self._began, 1e-9)
        others = max(0.0, _busy_cpu_seconds() - self._busy - self._worked) / elapsed
        return {
            "machine": hardware_class(usable_cpus()),
            "usable_cpus": usable_cpus(),
            "system": platform.platform(),
            "engines": {side: {name: states[side][name] for name in ("versions", "about")} for side in SIDES},
            "cpus_used_while_waiting": {side: _share(cpu, wall) for side, (wall, cpu) in self._waiting.items()},
            "cpus_used_by_others": round(others, 3),
            "rounds": len(self.samples["artifact"]),
            "warmup_rounds": len(self.samples["artifact_warmup"]),
        }


def _share(cpu: float, wall: float) -> float:
    return round(cpu / wall, 3) if wall else 0.0


def _has_settled(times: Sequence[Times], window: int, tolerance: float) -> bool:
    last = times[-window:]
    if len(last) < window:
        return False
    return all(max(t[name] for t in last) <= (1 + tolerance) * min(t[name] for t in last) for name in last[0])


def _busy_cpu_seconds() -> float:
    """CPU seconds that all processes of the machine have used since it started (first line of /proc/stat,
    proc(5))."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:  # no such file on this system: others are reported as 0
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _common(session: _Session, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    """What every task has: time to open, memory, size. The last two are read once and have no interval."""
    loads = {side: [times["load"] for times in session.samples[f"{side}_load"]] for side in SIDES}
    count = len(loads["artifact"])
    peak = {side: states[side]["peak_bytes"] / MB for side in SIDES}
    return {
        "load_s": statistics.bootstrap(statistics.median(loads["artifact"]), count, "s"),
        "source_load_s": statistics.bootstrap(statistics.median(loads["source"]), count, "s"),
        "load_ratio": statistics.bootstrap(statistics.median_ratio(loads["source"], loads["artifact"]), count),
        "peak_memory_mb": statistics.exact(peak["artifact"], 1, "MB"),
        "source_peak_memory_mb": statistics.exact(peak["source"], 1, "MB"),
        "memory_ratio": statistics.exact(peak["source"] / peak["artifact"], 1),
        "file_size_mb": statistics.exact(session.opened["artifact"]["size_bytes"] / MB, 1, "MB"),
    }
