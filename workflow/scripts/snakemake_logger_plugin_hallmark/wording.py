"""What Snakemake's messages become for a reader: which are left out, and how endings and reasons are put. No state."""

from __future__ import annotations

import builtins
import re
import signal

NOISE = (
    "Assuming unrestricted shared filesystem usage",
    "Building DAG of jobs",
    "Conda environments: ignored",
    "DAG of jobs will be updated after completion",
    "Elapsed time: ",
    "Execute ",
    "Group jobs: inactive",
    "Reasons:\n",
    "Removing output files of failed job",
    "Rules claiming more threads will be scaled down",
    "Select jobs to execute",
    "Shutting down, this might take some time",
    "Singularity containers: ignored",
    "Updating checkpoint dependencies",
    "Using shell: ",
)
# Snakemake's metadata decides nothing here (the only rerun trigger is mtime), so its absence is no news.
NOISE_WITHIN = "provenance/metadata so that it in part"
FINAL = ("Exiting because a job execution failed", "WorkflowError:\nAt least one job did not complete successfully")
CANCELLED = "Terminating processes on user request"
FILES_OF_JOBS = re.compile(r"(Missing output files|Input files updated by another job): [^;]*")
PROCESS_ENDED = re.compile(r"returned non-zero exit status (\d+)|died with <Signals\.(\w+)")
# Where the plan is made in Snakemake's eyes. What is wrong lies in a file that the message itself names.
PLAN_LINE = re.compile(r'^WorkflowError in file "[^"\n]*/common\.smk", line \d+:\n')
NOT_YAML = "Config file is not valid JSON or YAML."
TRACE_LINE = re.compile(r'\n  File "[^"\n]*", line \d+, in [^\n]*')


def is_noise(text: str) -> bool:
    """Whether an informational message speaks only of Snakemake's inner working."""
    return text.startswith(NOISE) or NOISE_WITHIN in text


def is_final(text: str) -> bool:
    """Whether an error only says that other errors were reported before."""
    return text.startswith(FINAL)


def is_process_end(text: str) -> bool:
    """Whether an error says no more than how a job's process ended."""
    return bool(PROCESS_ENDED.search(text))


def ending(text: str) -> str:
    """How a process ended, from Snakemake's words, or ''. A shell reports a signal as 128 and the signal's number."""
    found = PROCESS_ENDED.search(text)
    if not found:
        return ""
    status, name = int(found[1] or 0), found[2] or ""
    if status - 128 in set(signal.Signals):
        name = signal.Signals(status - 128).name
    if not name:
        return f"exit status {status}"
    return f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")


def is_interrupt(how: str) -> bool:
    """Whether a process that ended so was stopped from the keyboard."""
    return how == "killed by SIGINT"


def reason(text: str) -> str:
    """Why a job is planned, without the names of files that jobs make: they are long and follow from the plan."""
    return FILES_OF_JOBS.sub(lambda found: found[1].lower(), text)


def for_user(text: str, exception: str) -> str:
    """An error's text; without the lines of its traceback where it is meant for the user, and no bug to be traced."""
    if hasattr(builtins, exception):
        return text
    if NOT_YAML in text:
        return f"{NOT_YAML} `hallmark plan`, with the same --configfile, says in which line."
    return PLAN_LINE.sub("", TRACE_LINE.sub("", text))
