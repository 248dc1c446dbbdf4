"""Process sessions that end with whoever started them. Starts nothing but the guard that sees to it.

A program in a session of its own (`start_new_session=True`) can be ended with all that it started, also with what made
a process group of its own, as ninja does with every compiler.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROUNDS = 5  # a process may start another while the list of them is read

# A shell in a session of its own. It reads a session's number, and a second line when all is over. When its input ends
# without that, the process at the other end was killed, and it does what `kill_session` does. The fields of
# /proc/*/stat behind the name are state, parent, group, session.
GUARD = """
read -r session || exit
read -r finished && exit
kill -s KILL -- "-$session"
for round in 1 2 3 4 5; do
    for file in /proc/[0-9]*/stat; do
        read -r line < "$file" || continue
        set -- ${line##*) }
        [ "$4" = "$session" ] || continue
        pid=${file#/proc/}
        kill -s KILL "${pid%/stat}"
    done
done
"""


@contextmanager
def guard() -> Iterator[int]:
    """A guard that kills a session when this process ends inside the block, however it ends.

    Yields the descriptor to write the session's number to, as a line. The session's leader does that itself before it
    runs its program (see `processes.die_with_parent`), so there is no moment in which it is not guarded.
    """
    shell = subprocess.Popen(
        ["/bin/sh", "-c", GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    stdin = shell.stdin
    assert stdin is not None
    try:
        yield stdin.fileno()
    finally:
        with suppress(BrokenPipeError):  # someone has killed the guard
            stdin.write(b"finished\n")
        stdin.close()
        shell.wait()


def kill_session(session: int) -> None:
    """Send SIGKILL to every process of a session. Its leader must not have been waited for yet: that keeps the number.

    Where there is no /proc, only to those in the leader's process group.
    """
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses when only the zombie is left
        os.killpg(session, signal.SIGKILL)
    for _ in range(ROUNDS):
        members = _members(session)
        if not members:
            return
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _members(session: int) -> list[int]:
    """The processes of a session that are no zombies."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if fields[3] == str(session) and fields[0] not in "ZX":
                found.append(int(status.parent.name))
    return found
