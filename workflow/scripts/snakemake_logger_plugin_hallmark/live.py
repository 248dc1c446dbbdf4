"""The moving part of the terminal: a line for each running job, and one for the whole run. It decides nothing."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hallmark.console import Job, rounded
from snakemake_logger_plugin_hallmark.run import Run

BAR = 24
LINES_AROUND = 4  # kept free of job lines: the overall line, the count of the rest, the prompt


class Region:
    """Running jobs at the bottom of the screen; everything else that is printed scrolls by above."""

    def __init__(self, stream: TextIO, run: Run, colour: bool) -> None:
        self.run = run
        self.console = Console(file=stream, no_color=not colour, highlight=False, markup=False, emoji=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True, get_renderable=self.render)
        self.live.start()

    def say(self, text: str) -> None:
        self.console.print(Text.from_ansi(text), soft_wrap=True)

    def refresh(self) -> None:
        self.live.refresh()

    def close(self) -> None:
        self.live.stop()

    def render(self) -> RenderableType:
        now = self.run.clock()
        jobs = [job for job in self.run.running.values() if not job.quick]
        room = max(1, self.console.height - LINES_AROUND)
        table = _grid(bar_at=2, columns=4)
        for job in jobs[:room]:
            table.add_row(*self._row(job, now))
        more = [Text(f"... and {len(jobs) - room} more", style="dim")] if len(jobs) > room else []
        return Group(table, *more, self._overall(now))

    def _row(self, job: Job, now: float) -> tuple[RenderableType, ...]:
        name = Text.assemble((job.rule, "cyan"), " ", job.subject)
        took = Text(_clock(now - job.started))
        if expected := self.run.durations.expected(job.rule, job.subject):
            took.append(f" of about {rounded(expected.seconds)}", style="dim")
        if not job.progress:
            return name, took, "", ""
        bar = ProgressBar(total=job.progress.of, completed=job.progress.done) if job.progress.of else ""
        return name, took, bar, Text(str(job.progress), style="dim")

    def _overall(self, now: float) -> RenderableType:
        run, left = self.run, self.run.time_left(now)
        said = Text(f"{run.done} of {run.total} jobs done, {_clock(now - run.started)}", style="bold")
        if run.failed:
            said.append(f", {len(run.failed)} failed", style="bold red")
        if left:
            said.append(f", {left}")
        table = _grid(bar_at=0, columns=2)
        table.add_row(ProgressBar(total=max(1, run.total), completed=run.done), said)
        return table


def _grid(bar_at: int, columns: int) -> Table:
    """A table without lines, in which the bar is what gives way on a narrow terminal."""
    table = Table.grid(padding=(0, 2))
    for column in range(columns):
        table.add_column(max_width=BAR) if column == bar_at else table.add_column(no_wrap=True, overflow="ellipsis")
    return table


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
