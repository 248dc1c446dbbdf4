"""Snakemake's logger `hallmark`: what a person sees of a run. It keeps no log; Snakemake's own is in .snakemake/log.

On a terminal, running jobs move at the bottom and finished ones scroll by; elsewhere, plain lines. A failed job comes
with the end of its log. Messages that only speak of Snakemake's inner working are left out; every other one is shown.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from logging import DEBUG, ERROR, WARNING, LogRecord
from pathlib import Path
from typing import TYPE_CHECKING

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from hallmark import console
from hallmark.processes import usable_cpus
from snakemake_logger_plugin_hallmark import wording
from snakemake_logger_plugin_hallmark.run import Run

if TYPE_CHECKING:
    from snakemake_logger_plugin_hallmark.live import Region

TICK = 0.5  # seconds between two pictures of the running jobs on a terminal
TICK_PLAIN = 3.0  # without one: how often to look whether a progress line is due
TELL_EVERY = 15.0  # seconds between two progress lines of one job
TAIL_LINES = 20
RED, YELLOW, GREEN, DIM, BOLD_RED = "31", "33", "32", "2", "1;31"


class LogHandler(LogHandlerBase):
    """Takes Snakemake's log records, one after the other, in the thread that Snakemake keeps for plugins."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        settings = self.common_settings
        quiet = {quietness.name.lower() for quietness in settings.quiet or ()}
        self.dryrun, self.verbose = settings.dryrun, settings.verbose
        self.silent = "all" in quiet and not settings.dryrun
        self.show_jobs = not quiet & {"rules", "all"}
        self.show_progress = not quiet & {"progress", "all"}
        self.show_reason = not quiet & {"reason", "all"}
        self.stream = sys.stdout if settings.stdout else sys.stderr
        terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = terminal and not settings.nocolor and not os.environ.get("NO_COLOR")
        self.moving = terminal and self.show_progress and not settings.dryrun
        self.run = Run()
        self.region: Region | None = None
        self.ticker: threading.Thread | None = None
        self.stopped = threading.Event()
        self.drawing = threading.RLock()
        self.table = self.own_log = ""
        self.unexplained: list[str] = []  # how processes ended, until the events that say which jobs they were
        self.events: dict[str | None, Callable[[LogRecord], None]] = {
            LogEvent.RUN_INFO: self.on_plan,
            LogEvent.RESOURCES_INFO: self.on_resources,
            LogEvent.JOB_INFO: self.on_job,
            LogEvent.SHELLCMD: self.on_command,
            LogEvent.JOB_FINISHED: self.on_finished,
            LogEvent.JOB_ERROR: self.on_failed,
            LogEvent.ERROR: self.on_error,
            LogEvent.PROGRESS: self.on_progress,
            LogEvent.GROUP_ERROR: self.on_other,
            LogEvent.DEBUG_DAG: self.on_other,
            None: self.on_message,
        }

    def emit(self, record: LogRecord) -> None:
        """Show a record. One that cannot be shown well is shown as it is: no text is lost, nor Snakemake's thread."""
        show = None if self.silent else self.events.get(getattr(record, "event", None))
        if not show:
            return
        with self.drawing:
            try:
                show(record)
            except BrokenPipeError:
                self.silent = True
            except Exception:
                self.handleError(record)
                self.say(record.getMessage())

    def on_plan(self, record: LogRecord) -> None:
        if self.dryrun:
            self.keep_table(record.getMessage().strip())
            return
        self.run.plan(record.__dict__["stats"])
        if self.show_progress:
            counts = ", ".join(f"{count} {rule}" for rule, count in self.run.waiting.items())
            cores, usable = "1 core" if self.run.cores == 1 else f"{self.run.cores} cores", usable_cpus()
            cores += f", of which there are {usable}" if self.run.cores > usable else ""
            self.say(f"{_jobs(self.run.total)} on {cores}: {counts}")

    def keep_table(self, table: str) -> None:
        """Show the job counts after the planned jobs: Snakemake gives them before, and mostly once more at the end."""
        if self.table:
            self.say(f"\n{table}\n")
        self.table = "" if self.table else table

    def on_resources(self, record: LogRecord) -> None:
        self.run.cores = getattr(record, "cores", None) or self.run.cores

    def on_job(self, record: LogRecord) -> None:
        if self.dryrun:
            if self.show_jobs:
                self.say_planned(record)
            return
        job = self.run.start(record)
        self.start_ticking()
        if self.show_jobs and not self.region and not job.quick:
            cost = self.run.durations.expected(job.rule, job.subject)
            self.say(f"start {job.name}" + (f"  (about {console.rounded(cost.seconds)})" if cost else ""))

    def say_planned(self, record: LogRecord) -> None:
        info = record.__dict__
        name = f"{info['rule_name']} {console.subject(info['wildcards'] or {})}".strip()
        reason = wording.reason(str(info["reason"] or "")) if self.show_reason else ""
        self.say(name + (self.paint(f"  ({reason})", DIM) if reason else ""))

    def on_command(self, record: LogRecord) -> None:
        command = getattr(record, "shellcmd", None)
        if command and self.common_settings.printshellcmds and self.show_jobs:
            self.say(self.paint(command.strip(), DIM))

    def on_finished(self, record: LogRecord) -> None:
        job, seconds = self.run.finish(record.__dict__["job_id"], record.created)
        if not job or job.quick or not (self.show_jobs and self.show_progress):
            return
        left = None if self.region else self.run.time_left(record.created)
        count = self.paint(f"[{self.run.done}/{self.run.total}]", GREEN)
        self.say(f"{count} {job.name}  {console.span(seconds)}" + (f"  ({left})" if left else ""))

    def on_progress(self, record: LogRecord) -> None:
        self.run.total = record.__dict__["total"]  # a checkpoint may have added jobs

    def on_failed(self, record: LogRecord) -> None:
        info = record.__dict__
        why = self.unexplained.pop(0) if self.unexplained else ""
        notes = [info["rule_msg"]] if info["rule_msg"] else []
        notes += [f"{name}: {value}" for name, value in info["aux"].items()]
        ending = wording.ending(why)
        if self.run.cancelled or wording.is_interrupt(ending):
            self.show_stopped(info["jobid"])
            return
        if not info["log"]:
            notes += [line for line in (why or info["shellcmd"] or "").splitlines() if line]
        logs = [Path(log).absolute() for log in info["log"]]
        self.show_failure(info["jobid"], info["rule_name"], record.created, ending, notes, logs)

    def show_stopped(self, number: int) -> None:
        job = self.run.stop(number)
        if job and self.show_jobs:
            self.say(f"stopped {job.name}")

    def show_failure(self, number: int, rule: str, at: float, ending: str, notes: list[str], logs: list[Path]) -> None:
        job = self.run.fail(number)
        took = f"after {console.span(at - job.started)}" if job else ""
        said = ", ".join(part for part in (took, ending) if part)
        lines = [self.paint(f"FAILED {job.name if job else rule}  {said}".rstrip(), BOLD_RED)]
        lines += [f"  {note}" for note in notes]
        for log in logs:
            shown = console.tail(log, TAIL_LINES) if log.is_file() else []
            state = ", its last lines:" if shown else " (empty)" if log.exists() else " (not written)"
            lines += [f"  log: {log}{state}", *(f"  {self.paint('|', RED)} {line}" for line in shown)]
        self.say("\n".join(["", *lines]))

    def on_error(self, record: LogRecord) -> None:
        """An exception's text. One of a failed process says nothing of its job: it waits for the event that does."""
        text, exception = record.getMessage().rstrip(), getattr(record, "exception", "")
        if wording.is_process_end(text):
            self.unexplained.append(text)
            return
        number = re.search(r"\bJob (\d+) ", text) if exception == "MissingOutputException" else None
        job = self.run.running.get(int(number[1])) if number else None
        if number and job:  # no event follows that would say that this job failed
            notes = text.splitlines()[1:]
            self.show_failure(int(number[1]), job.rule, record.created, "", notes, list(job.logs))
        elif not (wording.is_final(text) and self.run.explained):
            self.say(self.paint(text if self.verbose else wording.for_user(text, exception), RED))

    def on_message(self, record: LogRecord) -> None:
        text = record.getMessage().rstrip("\n")
        if text.startswith("Complete log(s): "):
            self.own_log = text.removeprefix("Complete log(s): ")
        elif text.startswith(wording.CANCELLED):
            self.run.cancelled = True
            self.say(text)
        elif record.levelno >= ERROR:
            if not (wording.is_final(text) and self.run.explained):
                self.say(self.paint(text, RED))
        elif record.levelno >= WARNING:
            self.say(self.paint(text, YELLOW))
        elif self.verbose or (record.levelno > DEBUG and text and not wording.is_noise(text)):
            self.say(text)

    def on_other(self, record: LogRecord) -> None:
        """Rare events, as Snakemake itself words them."""
        failed = record.levelno >= ERROR
        if failed or self.common_settings.debug_dag:
            from snakemake.logging import DefaultFormatter

            self.say(self.paint(DefaultFormatter().format(record), RED if failed else DIM))

    def start_ticking(self) -> None:
        if self.ticker or not self.show_progress:
            return
        if self.moving:
            from snakemake_logger_plugin_hallmark.live import Region

            self.region = Region(self.stream, self.run, self.colour)
        self.ticker = threading.Thread(target=self.tick, name="hallmark-console", daemon=True)
        self.ticker.start()

    def tick(self) -> None:
        while not self.stopped.wait(TICK if self.moving else TICK_PLAIN):
            with self.drawing:
                if self.stopped.is_set():
                    return
                self.run.poll()
                self.run.durations.save()
                if self.region:
                    self.region.refresh()
                else:
                    self.tell_progress(self.run.clock())

    def tell_progress(self, now: float) -> None:
        for job in self.run.running.values():
            if self.show_jobs and not job.quick and now - job.told >= TELL_EVERY:
                job.told = now
                progress = f", {job.progress}" if job.progress else ""
                self.say(f"  ... {job.name}  {console.span(now - job.started)}{progress}")

    def close(self) -> None:
        """End the display and say what became of the run. Snakemake calls it last, and Python once more at its exit."""
        with self.drawing:
            if not self.stopped.is_set():
                self.stopped.set()
                if self.region:
                    self.region.close()
                    self.region = None
                if self.run.done:
                    self.run.durations.save()
                with suppress(OSError, ValueError):  # the stream may be closed by then
                    self.summarise()
        super().close()

    def summarise(self) -> None:
        run = self.run
        if self.silent:
            return
        for text in self.unexplained:
            self.say(self.paint(text, RED))
        if self.table:
            self.say(self.table)
        if run.failed:
            rest = run.total - run.done - len(run.failed)
            # With --quiet, Snakemake does not tell which jobs ended well.
            counts = f", {run.done} done, {rest} not run" if self.show_progress else ""
            self.say("\n" + self.paint(f"{len(run.failed)} of {_jobs(run.total)} failed{counts}:", BOLD_RED))
            for job in run.failed.values():
                self.say(f"  {job.name}" + "".join(f"  {log}" for log in job.logs))
            if self.own_log:
                self.say(self.paint(f"Snakemake's own log: {self.own_log}", DIM))
        elif run.planned and self.show_progress:
            what = f"{_jobs(run.done)} done" if run.done >= run.total else f"{run.done} of {_jobs(run.total)} done"
            self.say(f"{what} in {console.span(run.clock() - run.started)}")

    def paint(self, text: str, style: str) -> str:
        return "\n".join(f"\033[{style}m{line}\033[0m" for line in text.split("\n")) if self.colour else text

    def say(self, text: str) -> None:
        if self.region:
            self.region.say(text)
            return
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        self.stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self.stream.flush()


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"
