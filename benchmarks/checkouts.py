"""Fresh checkouts to time things in: nothing built, no bytecode, no history. Builds nothing but the tiny checkpoint."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from hallmark import config, planner, toolchains
from hallmark.plan import Plan

ROOT = Path(__file__).parents[1]
COPIED = ("Snakefile", "workflow", "profiles", "config")
TINY = "tiny"
CONFIG = Path("config/config.yaml")


def maker(name: str, scratch: Path) -> Callable[[Path], None]:
    """What makes a fresh checkout in a folder: of the tests' tiny model, or with a configuration of this checkout."""
    if name != TINY:
        return lambda folder: _copy(Path(name), folder)
    from tests.workflow.conftest import prepare  # here, because it needs pytest and nothing else does

    checkpoint = scratch / "checkpoint"
    subprocess.run([toolchains.make("torch").python, ROOT / "tests/checkpoints.py", checkpoint], check=True)

    def make(folder: Path) -> None:
        prepare(folder, checkpoint)

    return make


def _copy(chosen: Path, folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for part in COPIED:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=ignored)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / part)
    shutil.copy(chosen, folder / CONFIG)


def plan_of(checkout: Path, file: Path = CONFIG) -> Plan:
    """The plan of a checkout; its paths are relative to that folder."""
    with contextlib.chdir(checkout):
        return planner.load(config.load_yaml(file), str(file))
