"""Fixtures that more than one test module needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hallmark import toolchains

ROOT = Path(__file__).parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that with `-n` no process is left with one of them at the end."""
    items.sort(key=lambda item: "workflow" not in item.path.parts)


@pytest.fixture(scope="session")
def toolchain() -> Callable[[str], Path]:
    """The Python program of a toolchain by name, made in the shared cache folder when it is not there yet."""

    def python(name: str) -> Path:
        return toolchains.make(name).python

    return python


@pytest.fixture(scope="session")
def tiny_llama(toolchain: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama checkpoint; copy it before changing it."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    subprocess.run([toolchain("torch"), ROOT / "tests/checkpoints.py", folder], check=True, stdout=sys.stderr)
    return folder
