"""What a person is told of a run: a job's progress, its expected duration, the time left, the end of its log.

It does not draw and knows nothing of Snakemake: the logger plugin does both. Jobs and the plugin live in different
processes, so progress goes through a small file beside the job's log, and durations through a file in the state folder.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

STATE_VARIABLE = "HALLMARK_STATE"  # the folder that remembers durations; the Snakefile sets it
STATE_DEFAULT = Path("artifacts/.state")
PUBLISH_EVERY = 0.2  # seconds; a worker may report thousands of times, a person reads far fewer
TAIL_BYTES = 64 * 1024
TAIL_WIDTH = 400
SUBJECT_PARTS = ("model", "format", "variant", "target")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Progress:
    """A worker's latest report: `done` of `of` things (`what`, plural); `of` is 0 where the end is not known."""

    done: int
    of: int
    what: str

    def __str__(self) -> str:
        return f"{self.done} of {self.of} {self.what}" if self.of else f"{self.done} {self.what}"


@dataclass
class Job:
    """A job as people see it. `started`: seconds since the epoch. `quick`: has no outputs, is counted but not shown."""

    rule: str
    subject: str
    threads: int
    started: float
    logs: tuple[Path, ...] = ()
    quick: bool = False
    progress: Progress | None = None
    told: float = 0.0  # when its progress was last written as a line

    @property
    def name(self) -> str:
        return f"{self.rule} {self.subject}".strip()

    def poll(self) -> None:
        """Take over the latest progress, if there is a new one."""
        for log in self.logs[:1]:
            self.progress = latest(log, since=self.started) or self.progress


def progress_file(log: Path) -> Path:
    return log.with_name(log.name + ".progress")


def publish(log: Path, done: int, of: int, what: str) -> None:
    """Leave a progress report for the console beside a job's log. Reports that follow too fast are dropped.

    It never fails: a full disk is for the job itself to report, in words that say what it was writing.
    """
    path = progress_file(log)
    with suppress(OSError):
        if done != of and time.time() - path.stat().st_mtime < PUBLISH_EVERY:
            return
    with suppress(OSError):
        _replace(path, json.dumps({"done": done, "of": of, "what": what}), f"{path}.new")


def clear(log: Path) -> None:
    """Remove a job's progress report; there need not be one."""
    for path in (progress_file(log), Path(f"{progress_file(log)}.new")):
        with suppress(OSError):
            path.unlink()


def latest(log: Path, since: float = 0.0) -> Progress | None:
    """The latest report of a job that started at `since`: one left behind by a killed run is older, and not taken."""
    try:
        path = progress_file(log)
        if path.stat().st_mtime < since - 1:  # file systems round their time stamps
            return None
        report = json.loads(path.read_text())
        return Progress(int(report["done"]), int(report["of"]), str(report["what"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def subject(wildcards: Mapping[str, str]) -> str:
    """What a job is about: model/format/variant/target, those that it has; else its wildcards in order but `key`."""
    parts = [wildcards[name] for name in SUBJECT_PARTS if name in wildcards]
    return "/".join(parts or [value for name, value in wildcards.items() if name != "key"])


@dataclass(frozen=True)
class Cost:
    """What a job took: seconds on `threads` cores, or on all there are (`exclusive`)."""

    seconds: float
    threads: int
    exclusive: bool = False

    def cores(self, available: int) -> int:
        return available if self.exclusive else min(self.threads, available)


class Durations:
    """What jobs took in earlier runs: `durations.json` in the state folder. Estimates only, so it never fails a run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "durations.json"
        self._known = self._read()
        self._new: dict[str, Cost] = {}
        self._by_rule: dict[str, Cost | None] = {}

    def _read(self) -> dict[str, Cost]:
        try:
            return {name: Cost(**cost) for name, cost in json.loads(self.path.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def record(self, job: Job, seconds: float, cores: int) -> None:
        """Remember what a job took on a machine where `cores` were given to the run."""
        exclusive = 1 < cores <= job.threads
        self._new[job.name] = self._known[job.name] = Cost(round(seconds, 2), job.threads, exclusive)
        self._by_rule.pop(job.rule, None)

    def expected(self, rule: str, of: str | None = None) -> Cost | None:
        """What a job of the rule about the subject `of` took last time, or the median of that rule; None if unknown."""
        if of is not None and (known := self._known.get(f"{rule} {of}".strip())):
            return known
        if rule not in self._by_rule:
            self._by_rule[rule] = self._median(rule)
        return self._by_rule[rule]

    def _median(self, rule: str) -> Cost | None:
        costs = [cost for name, cost in self._known.items() if name.split(" ", 1)[0] == rule]
        if not costs:
            return None
        from statistics import median, median_high  # slow to import, and a run that has nothing to do needs none

        threads = int(median_high(cost.threads for cost in costs))
        return Cost(median(cost.seconds for cost in costs), threads, any(cost.exclusive for cost in costs))

    def save(self) -> None:
        """Write what this run added, keeping what other runs wrote meanwhile."""
        if not self._new:
            return
        merged = {name: asdict(cost) for name, cost in sorted({**self._read(), **self._new}.items())}
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.path, json.dumps(merged, indent=1), f"{self.path}.{os.getpid()}")
            self._new.clear()


def durations() -> Durations:
    """The durations in the folder that the environment names."""
    return Durations(Path(os.environ.get(STATE_VARIABLE) or STATE_DEFAULT))


@dataclass(frozen=True)
class TimeLeft:
    """An estimate in seconds, and how many jobs are not in it, because none of their rule has ever been timed."""

    seconds: float
    untimed: int = 0

    def __str__(self) -> str:
        if not self.untimed:
            return f"about {rounded(self.seconds)} left"
        return f"{rounded(self.seconds)} left, and {self.untimed} job{'s' * (self.untimed > 1)} of unknown length"


def remaining(job: Job, known: Durations, now: float) -> float | None:
    """Seconds that a running job still needs: from earlier runs, else from its own progress; None if neither says."""
    elapsed = now - job.started
    cost = known.expected(job.rule, job.subject)
    if cost and cost.seconds > elapsed:
        return cost.seconds - elapsed
    if job.progress and 0 < job.progress.done <= job.progress.of:
        return elapsed * (job.progress.of - job.progress.done) / job.progress.done
    return 0.0 if cost else None


def time_left(
    waiting: Mapping[str, int], running: Iterable[Job], known: Durations, cores: int, now: float
) -> TimeLeft | None:
    """Core-seconds still to spend over cores. `waiting`: jobs not started yet, by rule. None where nothing is known."""
    work, longest, untimed, any_known = 0.0, 0.0, 0, False
    for job in running:
        seconds = remaining(job, known, now)
        untimed += seconds is None
        any_known |= seconds is not None
        work += (seconds or 0.0) * min(job.threads, cores)
        longest = max(longest, seconds or 0.0)
    for rule, count in waiting.items():
        cost = known.expected(rule) if count else None
        untimed += count if cost is None else 0
        if cost:
            any_known = True
            work += count * cost.seconds * cost.cores(cores)
    return TimeLeft(max(work / cores, longest), untimed) if any_known else None


def span(seconds: float) -> str:
    """A measured duration: `12.3 s`, `1 min 15 s`, `1 h 02 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rounded(seconds: float) -> str:
    """An estimated duration, no more precise than it can be: `3 s`, `40 s`, `6 min`, `1 h 40 min`."""
    if seconds < 57.5:
        return f"{max(1, round(seconds)) if seconds < 10 else round(seconds / 5) * 5} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def tail(log: Path, lines: int = 20) -> list[str]:
    """The last lines of a log, as plain text: of a line rewritten with carriage returns, what it showed at the end."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    shown = [CONTROL.sub("", line.rstrip("\r").rsplit("\r", 1)[-1]).rstrip() for line in text.rstrip().split("\n")]
    cut = [line if len(line) <= TAIL_WIDTH else f"{line[:TAIL_WIDTH]} ..." for line in shown]
    return cut[-lines:] if any(cut) else []


def _replace(path: Path, text: str, temporary: str) -> None:
    Path(temporary).write_text(text)
    Path(temporary).replace(path)
