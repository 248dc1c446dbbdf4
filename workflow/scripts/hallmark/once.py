"""Taking turns: folders that are made once and used by many, and the machine for measuring. Makes nothing itself."""

from __future__ import annotations

import fcntl
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hallmark.processes import to_stderr

POLL_SECONDS = 0.5


@contextmanager
def made_once(folder: Path, ready: Callable[[], bool], *, keep: bool = False) -> Iterator[bool]:
    """Hold the lock on a folder while the block makes it; yields False, and holds nothing, when it is `ready` already.

    What is there but not ready is a half-made one of a killed run, and is removed first (not with `keep`, for work that
    can go on where it stopped). The lock is `.<name>.lock` beside the folder; the kernel frees it when its holder dies.
    """
    if ready():
        yield False
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        _wait_for(lock.fileno(), folder)
        needed = not ready()  # another one may have made it meanwhile
        if needed and not keep and folder.exists():
            shutil.rmtree(folder)
        yield needed


@contextmanager
def machine(cache: Path, alone: bool) -> Iterator[None]:
    """Hold this machine, `alone` or with others who do not mind: speed is measured while no other run with this cache
    folder converts, inspects, lints or measures."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"machine-{platform.node()}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            to_stderr("another run uses this machine and one of the two measures speed: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _wait_for(lock: int, folder: Path) -> None:
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                to_stderr(f"another run makes {folder}: waiting for it")
            told = True
            time.sleep(POLL_SECONDS)
