"""Fixtures that more than one test module needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hallmark import once, toolchains

ROOT = Path(__file__).parents[1]


# Files that take a minute and more, the longest first.
LONG = (
    "workflow/test_rebuilds.py", "workflow/test_interruptions.py", "unit/test_onnx.py", "unit/test_openvino.py",
    "workflow/test_lint.py", "unit/test_choices.py", "workflow/test_last_release.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that with `-n` no process is left with one of them at the end."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def toolchain() -> Callable[[str], Path]:
    """The Python program of a toolchain by name, made in the shared cache folder when it is not there yet."""

    def python(name: str) -> Path:
        return toolchains.make(name).python

    return python


@pytest.fixture(scope="session")
def made_once_for_all(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function that gives a folder of that name, which one of the processes of `pytest -n` makes and all read."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        made = shared / "once" / name
        with once.made_once(made, (made / "ready").exists) as needed:
            if needed:
                made.mkdir(parents=True)
                make(made / "content")
                (made / "ready").touch()
        return made / "content"

    return folder


@pytest.fixture(scope="session")
def tiny_llama(
    toolchain: Callable[[str], Path], made_once_for_all: Callable[[str, Callable[[Path], object]], Path]
) -> Path:
    """A tiny Llama checkpoint; copy it before changing it."""
    program = ROOT / "tests/checkpoints.py"
    return made_once_for_all(
        "tiny-llama",
        lambda folder: subprocess.run([toolchain("torch"), program, folder], check=True, stdout=sys.stderr),
    )
