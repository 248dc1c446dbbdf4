"""The state of a run, kept from Snakemake's events: what runs, what waits, what failed. It prints nothing."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from logging import LogRecord
from pathlib import Path

from hallmark import console
from hallmark.console import Durations, Job, TimeLeft


@dataclass
class Run:
    """Jobs by Snakemake's job number. `waiting` counts the jobs not started yet, by rule."""

    cores: int = 1
    total: int = 0
    done: int = 0
    started: float = field(default_factory=time.time)
    planned: bool = False
    cancelled: bool = False
    running: dict[int, Job] = field(default_factory=dict)
    failed: dict[int, Job] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)

    @cached_property
    def durations(self) -> Durations:
        # Not before the first job: the Snakefile names the folder, and a dry run needs none of it.
        return console.durations()

    def plan(self, stats: dict[str, int]) -> None:
        """Take the job counts that Snakemake gives before the first job."""
        self.planned = True
        self.total = stats.get("total", 0)
        self.waiting = Counter({rule: count for rule, count in stats.items() if rule != "total"})

    def start(self, record: LogRecord) -> Job:
        """A job was started, for the first time or again."""
        info = record.__dict__
        number, rule = info["jobid"], info["rule_name"]
        job = Job(
            rule=rule,
            subject=console.subject(info["wildcards"] or {}),
            threads=int(info["threads"] or 1),
            started=record.created,
            logs=tuple(Path(log).absolute() for log in info["log"] or ()),
            quick=not info["output"],
            told=record.created,
        )
        if not self.failed.pop(number, None):
            self.waiting[rule] -= 1
        self.running[number] = job
        return job

    def finish(self, number: int, at: float) -> tuple[Job | None, float]:
        """A job ended well: the job and its seconds."""
        self.done += 1
        job = self._end(number)
        seconds = at - job.started if job else 0.0
        if job:
            self.durations.record(job, seconds, self.cores)
        return job, seconds

    def fail(self, number: int) -> Job | None:
        job = self._end(number)
        if job:
            self.failed[number] = job
        return job

    def stop(self, number: int) -> Job | None:
        """A job was ended because the user ended the run."""
        self.cancelled = True
        return self._end(number)

    @property
    def explained(self) -> bool:
        """Whether it was said why the run does not end well."""
        return self.cancelled or bool(self.failed)

    def _end(self, number: int) -> Job | None:
        job = self.running.pop(number, None)
        for log in job.logs[:1] if job else ():
            console.clear(log)  # a killed job leaves its report behind
        return job

    def poll(self) -> None:
        for job in self.running.values():
            job.poll()

    def time_left(self, now: float) -> TimeLeft | None:
        return console.time_left(self.waiting, self.running.values(), self.durations, self.cores, now)

    def clock(self) -> float:
        return time.time()
