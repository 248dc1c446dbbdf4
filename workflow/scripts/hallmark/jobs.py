"""The frame of every job: log, verified inputs, one entry written or a message why not. What rules do is in `bodies`.

It knows of Snakemake nothing but the job object that a script is given.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import console, digest, links, progress, store, toolchains
from hallmark.once import machine
from hallmark.processes import end_with_main

if TYPE_CHECKING:
    from snakemake.iocontainers import Snakemake

STATE = Path(os.environ.get(console.STATE_VARIABLE, console.STATE_DEFAULT))


@dataclass(frozen=True)
class Job:
    """What a rule's script works with: the node as JSON, its inputs by role, where to log, the entry being written.

    `after` are the entries that it waited for, by role; they may stop it and decide no byte.
    """

    node: Mapping[str, Any]
    settings: Mapping[str, Any]
    inputs: Mapping[str, store.Entry]
    after: Mapping[str, store.Entry]
    log: Path
    draft: store.Draft

    @property
    def recipe(self) -> Mapping[str, Any]:
        recipe: Mapping[str, Any] = self.node["recipe"]
        return recipe

    @property
    def subject(self) -> str:
        return "/".join(self.node["subject"])


def log_to(path: Path) -> None:
    """Send standard output and error, also those of child processes, to a rule's log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def write_entry(snakemake: Snakemake, make: Callable[[Job], Mapping[str, Any]]) -> None:
    """Run `make` on verified inputs and commit what it wrote; it returns notes for the manifest. Exits 1 on failure."""
    node, settings = dict(snakemake.params.node), snakemake.params.settings
    node["cpus"] = min(node["cpus"], snakemake.threads)
    root = Path(settings["store"]).absolute()
    final = root / node["verb"] / "/".join(node["subject"]) / node["key"]
    memory = digest.Memory(STATE / "digests.sqlite")
    started = time.monotonic()
    with reporting(Path(snakemake.log[0])) as log:
        inputs = {role: store.verify(root / place, memory) for role, place in node["inputs"].items()}
        digests = {role: entry.digest for role, entry in inputs.items()}
        if not _is_made(root, final, digests, memory):
            header = {field: node[field] for field in ("verb", "subject", "key", "components")}
            header["inputs"] = digests
            after = {role: store.verify(root / place, memory) for role, place in node["after"].items()}
            with store.writing(root, final, header, memory) as draft:
                draft.notes.update(make(Job(node, settings, inputs, after, log, draft)))
                draft.notes["seconds"] = round(time.monotonic() - started, 1)
                _same_code(node["components"]["code"])
        if node["link"]:
            links.point(node["link"], final)
        memory.save()


def _is_made(root: Path, final: Path, inputs: Mapping[str, str], memory: digest.Memory) -> bool:
    """Whether the entry is there, by another run or from before an input was built again. One that was made from other
    bytes than its inputs hold now is set aside."""
    if not store.is_whole(root, final, memory):
        return False
    if store.read(final).manifest.get("inputs") != inputs:
        store.set_aside(root, final)
        return False
    store.mark(final)
    return True


def _same_code(planned: Mapping[str, str]) -> None:
    """Raise when a module that decides the entry was edited since its key was computed."""
    for module, then in planned.items():
        if digest.of_code(module)[:16] != then:
            raise RuntimeError(f"{module} was edited while this run was under way; run again")


def publish(snakemake: Snakemake) -> None:
    """Publish one bundle into the release, or refuse it: exit 1, with the gate, the number and the limit in the log."""
    from hallmark import gates, release  # no other job needs them, and importing pydantic and jinja2 takes time

    offered, settings = snakemake.params.offer, snakemake.params.settings
    with reporting(Path(snakemake.log[0])):
        policies = {name: gates.policy_digest(gates.from_json(value)) for name, value in offered["gates"].items()}
        bundle = store.verify(Path(settings["store"]) / offered["bundle"])
        offer = release.Offer(offered["target"], offered["model"], bundle.files, policies)
        refusal = release.publish(offer, Path(snakemake.output.manifest).parents[2])
        if refusal:
            print(release.describe_refusals([refusal]), flush=True)
            raise SystemExit(1)


def make_toolchain(snakemake: Snakemake) -> None:
    """Make one toolchain in the cache folder."""
    with reporting(Path(snakemake.log[0])), machine(toolchains.cache_folder(), alone=False):
        toolchains.make(snakemake.params.name, snakemake.params.settings["torch_build"], on_progress=progress.report)


@contextmanager
def reporting(log: Path) -> Iterator[Path]:
    """Send output to the log and progress to the console; end with one message and exit 1 when the block raises."""
    log_to(log)
    end_with_main()
    try:
        with progress.heard_by(partial(console.publish, log)):
            yield log
    except Exception as error:
        traceback.print_exc()
        print(f"\n{explain(error)}", flush=True)
        raise SystemExit(1) from None
    finally:
        console.clear(log)


def explain(error: Exception) -> str:
    """The message that ends the log of a failed job."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = error.filename or "no file named"
        return f"The disk is full ({place}). Nothing half-written was kept; free some space and run again."
    if isinstance(error, store.Damaged):
        return f"Damaged store entry: {error}. The next run finds it and builds it again."
    return f"{type(error).__name__}: {error}"
