"""The speed of an artifact against its source on the same machine: two engines, taking turns. Judges nothing.

Each engine is a process of its own (`hallmark.worker`, action `serve`), because engines in one process starve one
another. Only one works at a time; the other blocks on its standard input. A round sends the same request to both, and
the lot draws which of them is first: a machine that slows down slows both, and noise of whatever kind is as likely to
hit one as the other, which is what the intervals rest on (`hallmark.intervals`). Every round has another request, so
that no cache of an engine can answer for it. Times are taken inside the engine, around the request, and with them the
CPU time that its process used, which others on the machine lengthen less.

A measurement goes through five parts:

    warm-up    rounds that are thrown away, until both engines have settled: the fastest of their last `warmup_window`
               answers is at most `warmup_tolerance` faster than the fastest before, so they gain no more. Noise, which
               only makes answers slower, does not keep them from it. At most `warmup_rounds`.
    rounds     timed. After FIRST_LOOK of them and `least_seconds`, and then whenever there are half as many again,
               the numbers are looked at. Rounds end when each number that is about to be held to limits has an interval
               clear of them all or within `precision` (where there are no limits: each ratio), or after `seconds` or
               `rounds`.
    state      peak memory, versions
    openings   `loads` times in turns each engine closes and opens its model and answers a short request; then the
               artifact's answers `warmup_window` more. What these take beyond its pace in the soak is `warmup_s`.
    soak       `soak_requests` short requests to the artifact's engine, or as many as it answers in SOAK_S, after each
               of which its private memory is read

Limits only say when the rounds may end, and any end is sound, since the intervals hold at every look. So limits are no
part of a measurement's key, and a changed limit judges again what was measured; should it lie inside an interval that
was enough for an earlier one, the verdict is `inconclusive` and the next attempt measures for the new one.

No rate is refused for being high: what memory bandwidth allows cannot be said without knowing which weights a step
reads (caches, embeddings, experts). Instead every decoded token is needed for the next, prompts never repeat, and the
CPU time that the waiting engine and the rest of the machine used meanwhile is recorded: a spinning thread pool shows.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from hallmark import intervals, statistics, tasks
from hallmark.devices import hardware_class
from hallmark.engine import Command, Engine, gained
from hallmark.host import Watch
from hallmark.processes import end_with_main, usable_cpus
from hallmark.progress import report
from hallmark.statistics import Estimate
from hallmark.tasks import Metric, Option, timed

SIDES = ("artifact", "source")
MB = 1_000_000
FIRST_LOOK = 12  # rounds; with fewer no interval is to be had at the first look's confidence
GROWTH = 1.5  # rounds at a look over those at the one before
SEED = 20240229
SOAK_S = 10.0
SOAKED_AT_ONCE = 8
SOAKED_AT_LEAST = 16  # fewer give the growth of memory no interval
Times = dict[str, float]
Limits = Mapping[str, Sequence[float]]
OnProgress = Callable[[int, int, str], None]

COMMON_OPTIONS: dict[str, Option] = {
    "least_seconds": Option(5, "timed rounds go on for so long, and for 12 rounds, whatever they say"),
    "seconds": Option(25, "at most so many seconds of timed rounds, though at least 12 rounds"),
    "precision": Option(0.02, "rounds end when intervals are narrower than plus and minus this share, if not before"),
    "warmup_tolerance": Option(0.1, "engines have settled when they gain no more than this share of their pace"),
    "loads": Option(5, "timed openings of the model by each engine"),
    "soak_requests": Option(48, "short requests at the end, over which the growth of memory is taken", least=16),
    "timeout_s": Option(300, "an engine that is silent for so long has failed"),
}
COMMON_METRICS = {
    # Of as many openings and requests as the options say, however often they are measured.
    "load_s": timed(
        "s", "lower", "opening the model up to its first answer, files cached and libraries loaded", grows=False
    ),
    "source_load_s": timed("s", "lower", "the same of the source on PyTorch", grows=False),
    "load_ratio": timed("", "higher", "how many times faster than the source to open", grows=False),
    "warmup_s": timed(
        "s",
        "lower",
        "time that the first short answers after an opening take beyond the settled pace",
        "difference",
        grows=False,
    ),
    "peak_memory_mb": Metric(
        "speed", "MB", "lower", "peak resident memory of the engine, libraries and mapped files included"
    ),
    "source_peak_memory_mb": Metric("speed", "MB", "lower", "the same of the source on PyTorch"),
    "memory_ratio": Metric("speed", "", "higher", "the source's peak memory over the artifact's"),
    "memory_growth_mb_per_1000": Metric(
        "speed", "MB", "lower", "growth of the engine's private memory over 1000 short requests", grows=False
    ),
    "file_size_mb": Metric("speed", "MB", "lower", "size of the artifact's files"),
}


def measure(
    artifact: Command,
    source: Command,
    task: str,
    reference: Path,
    options: Mapping[str, Any],
    log: Path,
    limits: Limits,
    on_progress: OnProgress = report,
) -> tuple[dict[str, Estimate], dict[str, list[Any]], dict[str, Any]]:
    """Measure both engines in turns. Returns the metrics, the raw samples and the conditions.

    `options` are the task's, with `threads`; what the engines print goes to the end of `log`; `limits` are those that
    the metrics are about to be held to, by name. Samples are seconds by round: `artifact`, `source`, the same with
    `_warmup` and `_load`, and by short request `artifact_soak`, with private bytes; `first` is the side that began each
    round. Raises EngineError when an engine fails or hangs; both processes are gone then, as they are at the end.
    """
    end_with_main()
    module = tasks.get(task)
    rounds, most = max(FIRST_LOOK, int(options["rounds"])), int(options["warmup_rounds"])
    window = int(options["warmup_window"])
    requests = module.requests(reference, options, most + rounds)
    short = module.requests(reference, {**options, **module.FIRST_ANSWER}, int(options["soak_requests"]))
    with ExitStack() as stack:
        commands = zip(SIDES, (artifact, source), strict=True)
        engines = [
            stack.enter_context(Engine(name, command, log, float(options["timeout_s"]))) for name, command in commands
        ]
        session = _Session(engines, most + rounds + int(options["loads"]), on_progress)
        session.warm_up(requests[:most], window, float(options["warmup_tolerance"]))
        looks = _Looks(module, options, limits)
        session.time_rounds(requests[most:], looks)
        states = {engine.name: engine.ask({"do": "state"}) for engine in session.engines}
        session.time_loads(short[: 1 + window], int(options["loads"]))
        session.soak(short)
        conditions = session.conditions(states) | looks.conditions() | {"options": dict(options)}
        conditions["host"]["threads"] = int(options["threads"])
    return looks.metrics | _common(session, states), session.samples, conditions


class _Looks:
    """When to look at the rounds, what was seen, and whether that is enough."""

    def __init__(self, module: Any, options: Mapping[str, Any], limits: Limits) -> None:
        self._speed, self._options, self._limits = module.speed, options, limits
        self._next, self._began = FIRST_LOOK, time.monotonic()
        self.count, self.why = 0, ""
        self.metrics: dict[str, Estimate] = {}

    def enough(self, artifact: Sequence[Times], source: Sequence[Times], last: bool) -> bool:
        """Called after each round; `last`: there are no more requests."""
        spent, rounds = time.monotonic() - self._began, len(artifact)
        late = spent >= float(self._options["seconds"])
        due = rounds >= self._next and spent >= float(self._options["least_seconds"])
        if rounds < FIRST_LOOK or not (due or late or last):
            return False
        self.count += 1
        self._next = round(rounds * GROWTH)
        self.metrics = self._speed(artifact, source, intervals.error_at(self.count))
        watched = [name for name in self.metrics if name in self._limits] or [
            name for name, found in self.metrics.items() if found["unit"] == ""
        ]
        if all(self._is_settled(name) for name in watched):
            self.why = "settled"
        elif late or last:
            self.why = "seconds" if late else "rounds"
        return bool(self.why)

    def conditions(self) -> dict[str, Any]:
        """How often the rounds were looked at, what ended them, and the confidence over all looks of all attempts."""
        return {"looks": self.count, "rounds_ended_by": self.why, "confidence": 1 - intervals.ERROR}

    def _is_settled(self, name: str) -> bool:
        low, high = self.metrics[name]["low"], self.metrics[name]["high"]
        if low is None or high is None:
            return False
        bounds = self._limits.get(name, ())
        clear = bool(bounds) and not any(low <= bound <= high for bound in bounds)
        return clear or high <= low * (1 + float(self._options["precision"])) ** 2


class _Session:
    """Both engines at work: takes turns, keeps the samples and what happened around them."""

    def __init__(self, engines: Sequence[Engine], steps: int, on_progress: OnProgress) -> None:
        self.engines, self._steps, self._done, self._on_progress = engines, steps, 0, on_progress
        self.samples: dict[str, list[Any]] = {
            f"{side}{part}": [] for part in ("", "_warmup", "_load") for side in SIDES
        } | {"artifact_soak": [], "first": []}
        self._took: dict[str, list[float]] = {
            f"{side}{part}": [] for part in ("", "_warmup", "_load") for side in SIDES
        }
        self._waiting = {side: [0.0, 0.0] for side in SIDES}  # seconds waited, CPU seconds used meanwhile
        self._worked, self._lot = 0.0, random.Random(SEED)
        self._settled, self._gain = False, 0.0
        self._artifact = next(engine for engine in engines if engine.name == "artifact")
        self.opened = {engine.name: engine.reply() for engine in engines}
        self._watch = Watch()
        self._own_cpu = time.process_time()

    def _ask(self, engine: Engine, message: Mapping[str, Any]) -> dict[str, Any]:
        answer = engine.ask(message)
        self._waiting[engine.name][0] += answer["waited_s"]
        self._waiting[engine.name][1] += answer["waited_cpu_s"]
        self._worked += answer["waited_cpu_s"] + answer["cpu_s"]
        return answer

    def _turn(self, message: Mapping[str, Any], part: str) -> None:
        order = self.engines if self._lot.random() < 0.5 else self.engines[::-1]
        for engine in order:
            answer = self._ask(engine, message)
            self.samples[f"{engine.name}{part}"].append(answer["seconds"])
            self._took[f"{engine.name}{part}"].append(answer["took_s"])
        if not part:
            self.samples["first"].append(order[0].name)
        self._done += 1
        self._on_progress(self._done, self._steps, "rounds")

    def warm_up(self, requests: Sequence[Any], window: int, tolerance: float) -> None:
        """Rounds until both engines have settled, at most one for each request."""
        for number, request in enumerate(requests):
            self._turn({"do": "sample", "request": request}, "_warmup")
            self._gain = max(gained(self._took[f"{side}_warmup"], window) for side in SIDES)
            self._settled = self._gain <= tolerance
            if self._settled:
                self._steps -= len(requests) - number - 1
                break

    def time_rounds(self, requests: Sequence[Any], looks: _Looks) -> None:
        self._watch, self._worked, self._own_cpu = Watch(), 0.0, time.process_time()
        for number, request in enumerate(requests, 1):
            self._turn({"do": "sample", "request": request}, "")
            if looks.enough(self.samples["artifact"], self.samples["source"], number == len(requests)):
                self._steps -= len(requests) - number
                break
        self._watch.look()

    def time_loads(self, requests: Sequence[Any], count: int) -> None:
        """Openings in turns, each with the first request; the artifact's engine answers the others after it."""
        for _ in range(count):
            self._turn({"do": "load", "request": requests[0]}, "_load")
            answers = [self._ask(self._artifact, {"do": "sample", "request": request}) for request in requests[1:]]
            self.samples["artifact_load"][-1]["after"] = [answer["took_s"] for answer in answers]
        self._watch.look()

    def soak(self, requests: Sequence[Any]) -> None:
        """A few requests at a time, so that an engine that others starve can be let go after SOAK_S."""
        began = time.monotonic()
        for place in range(0, len(requests), SOAKED_AT_ONCE):
            answer = self._ask(self._artifact, {"do": "soak", "request": requests[place : place + SOAKED_AT_ONCE]})
            found = zip(answer["seconds"], answer["private_bytes"], strict=True)
            self.samples["artifact_soak"] += [{"seconds": seconds, "private_bytes": held} for seconds, held in found]
            if time.monotonic() - began > SOAK_S and place + SOAKED_AT_ONCE >= SOAKED_AT_LEAST:
                break

    def conditions(self, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The machine, the engines, and who else used the CPUs while they worked."""
        return {
            "machine": hardware_class(usable_cpus()),
            "usable_cpus": usable_cpus(),
            "system": platform.platform(),
            "engines": {side: {name: states[side][name] for name in ("versions", "about")} for side in SIDES},
            "cpus_used_while_waiting": {side: _share(cpu, wall) for side, (wall, cpu) in self._waiting.items()},
            "host": self._watch.summary(self._worked + time.process_time() - self._own_cpu),
            "settled": self._settled,
            "warmup_gain": round(min(max(self._gain, 0.0), 10.0), 3),
            "warmup_rounds": len(self.samples["artifact_warmup"]),
            "rounds": len(self.samples["artifact"]),
        }


def _share(cpu: float, wall: float) -> float:
    return round(cpu / wall, 3) if wall else 0.0


def _common(session: _Session, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    """What every task has: time to open, memory, size. Peaks and sizes are read once and have no interval."""
    error = intervals.error_at(1)
    loads = {side: [times["load"] for times in session.samples[f"{side}_load"]] for side in SIDES}
    soaked = session.samples["artifact_soak"]
    pace, held = median(each["seconds"] for each in soaked), [each["private_bytes"] for each in soaked]
    lost = [
        sum(max(0.0, took - pace) for took in (times["answer"], *times["after"]))
        for times in session.samples["artifact_load"]
    ]
    peak = {side: states[side]["peak_bytes"] / MB for side in SIDES}
    return {
        "load_s": intervals.typical(loads["artifact"], error, "s"),
        "source_load_s": intervals.typical(loads["source"], error, "s"),
        "load_ratio": intervals.typical(
            [own / other for own, other in zip(loads["source"], loads["artifact"], strict=True)], error
        ),
        "warmup_s": intervals.average(lost, error, "s"),
        "peak_memory_mb": statistics.exact(peak["artifact"], 1, "MB"),
        "source_peak_memory_mb": statistics.exact(peak["source"], 1, "MB"),
        "memory_ratio": statistics.exact(peak["source"] / peak["artifact"], 1),
        "memory_growth_mb_per_1000": intervals.growth(held[len(held) // 4 :], error, "MB", 1000 / MB),
        "file_size_mb": statistics.exact(session.opened["artifact"]["size_bytes"] / MB, 1, "MB"),
    }
