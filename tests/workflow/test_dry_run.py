"""`snakemake --dry-run` says what would be done and leaves everything as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.conftest import prepare

pytestmark = pytest.mark.slow


def test_a_dry_run_writes_nothing(tiny_llama: Path, tmp_path: Path) -> None:
    checkout = prepare(tmp_path / "checkout", tiny_llama)
    assert checkout.planned()
    assert not (checkout.folder / "artifacts").exists()
