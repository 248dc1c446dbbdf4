"""What a command uses, and how a handful of such numbers is shown. Judges nothing."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hallmark.devices import hardware_class
from hallmark.processes import LAST_LINES, usable_cpus

SNAKEMAKE = (sys.executable, "-m", "snakemake")


@dataclass(frozen=True)
class Usage:
    """Wall seconds, CPU seconds of a command with all that it waited for, and its exit code."""

    wall: float
    cpu: float
    code: int


def timed(command: Sequence[str | Path], folder: Path, log: Path, env: Mapping[str, str] | None = None) -> Usage:
    """Run a command to its end in a folder, its output going to `log`; what it exits with is the caller's to judge."""
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    return Usage(wall, usage.ru_utime + usage.ru_stime, process.returncode)


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])


def environment(checkout: Path) -> dict[str, str]:
    """This process's environment, with the modules of a checkout instead of the installed ones.

    Bytecode is written, else each process compiles what it imports and Snakemake alone takes twice as long.
    """
    foreign = ("HALLMARK_MAIN", "PYTHONDONTWRITEBYTECODE")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return own | {"PYTHONPATH": str(checkout / "workflow/scripts")}


def heading() -> str:
    """Date and machine, for the top of a table."""
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{date.today()}, {hardware_class(usable_cpus())}, {system}"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def summary(values: Sequence[float], digits: int = 2) -> str:
    """Median and spread: `1.52 (1.49 to 1.58)`."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
