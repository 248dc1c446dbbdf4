"""Killed runs and full disks: the next run ends right, and nothing half-written is used or released."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.workflow.conftest import CONFIG, Checkout, prepare

from hallmark import store

pytestmark = pytest.mark.slow

# More of each kind by hand: HALLMARK_KILLS=20 pytest tests/workflow/test_interruptions.py -k kill
KILLS = int(os.environ.get("HALLMARK_KILLS", "1"))
ROOMS = (0, 3_000_000, 5_000_000)  # bytes that are left on a full disk, each after what the runs before have stored
JOBS = 15  # of the small configuration, without the summary rule
SMALL = {
    **CONFIG,
    "models": {"tiny": {**CONFIG["models"]["tiny"], "formats": {"gguf": ["q8_0"]}}},
}
TARGETS = {
    "targets": {"cpu-llamacpp": {"candidates": ["gguf/q8_0"]}},
    "policies": {"default": {"causal-lm": {"*/*/*": {"kl_mean": {"max": 0.5}}}}},
}


@pytest.fixture
def checkout(tiny_llama: Path, tmp_path: Path) -> Checkout:
    checkout = prepare(tmp_path / "checkout", tiny_llama)
    checkout.configure(SMALL, TARGETS)
    return checkout


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own, on which a store lies beside what another program has written."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def grow(self, megabytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", self.folder], check=True)

    def fill(self, room: int | None) -> None:
        """Leave so many bytes free; with None, take nothing."""
        (self.folder / "filler").unlink(missing_ok=True)
        if room is not None:
            with (self.folder / "filler").open("wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(self.folder).free - room)


def everything_is_whole(checkout: Checkout, root: Path | None = None) -> None:
    root = root or checkout.folder / "artifacts/store"
    entries = [path.parent for path in root.glob("[a-z]*/**/manifest.json") if path.parent.name != "files"]
    assert entries
    for entry in entries:
        store.verify(entry)
    assert not list((root / ".tmp").glob("*"))
    release = next((checkout.folder / "artifacts/releases").glob("test-*"))
    subprocess.run(
        ["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"], cwd=release / "cpu-llamacpp/tiny", check=True
    )


def descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):  # it has just ended
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield int(child)
                yield from descendants(int(child))


def whole_group(main: subprocess.Popen[str]) -> None:
    os.killpg(main.pid, signal.SIGKILL)


def snakemake_alone(main: subprocess.Popen[str]) -> None:
    os.kill(main.pid, signal.SIGKILL)


def a_converter(main: subprocess.Popen[str]) -> None:
    """The deepest child: a worker or a tool that it runs."""
    found = list(descendants(main.pid))
    if found:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(found[-1], signal.SIGKILL)


KINDS: tuple[Callable[[subprocess.Popen[str]], None], ...] = (whole_group, snakemake_alone, a_converter)


def until_random_moment(main: subprocess.Popen[str], chance: random.Random) -> None:
    """Wait for a random number of jobs to start, and a little more; at the latest until the run is over."""
    assert main.stdout is not None
    jobs, started = chance.randint(1, JOBS // len(KINDS)), 0
    for line in main.stdout:
        started += line.startswith("start ")
        if started == jobs:
            break
    time.sleep(chance.uniform(0, 2))


def gone(pids: list[int], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", range(KILLS))
def test_after_kills_at_random_moments_the_next_run_ends_right(checkout: Checkout, number: int) -> None:
    """One of each kind, in a random order, each of which meets what the one before left."""
    chance = random.Random(number)
    for kill in chance.sample(KINDS, len(KINDS)):
        main = checkout.command()
        until_random_moment(main, chance)
        children = list(descendants(main.pid))
        kill(main)
        if kill is a_converter:
            main.communicate(timeout=300)
        else:
            main.wait(timeout=60)
            assert gone(children), f"a child of the killed run lives on ({kill.__name__})"
    checkout.snakemake()
    assert checkout.planned() == []
    everything_is_whole(checkout)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "small"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", folder], check=False).returncode
    ):
        pytest.skip("a tmpfs cannot be mounted here, which needs root")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_too_small_is_said_before_anything_starts(checkout: Checkout, small_disk: SmallDisk) -> None:
    checkout.configure({**SMALL, "store": str(small_disk.store)})
    said = checkout.snakemake(check=False)
    assert "MB of disk" in said
    assert "start " not in said
    assert not small_disk.store.exists()


def test_a_disk_that_fills_up_is_said_and_leaves_nothing_half_written(
    checkout: Checkout, small_disk: SmallDisk
) -> None:
    """Three times another program fills the disk once the run has begun, but for some bytes."""
    small_disk.grow(400)
    checkout.configure({**SMALL, "store": str(small_disk.store)})
    for room in ROOMS:
        main = checkout.command()
        assert main.stdout is not None
        said = ""
        for line in main.stdout:
            said += line
            if line.startswith("start "):
                break
        small_disk.fill(room)
        said += main.communicate(timeout=300)[0]
        assert main.returncode != 0
        assert "disk is full" in said
        for manifest in small_disk.store.glob("[a-z]*/**/manifest.json"):
            store.verify(manifest.parent)
        small_disk.fill(None)
    checkout.snakemake()
    assert checkout.planned() == []
    everything_is_whole(checkout, small_disk.store)
