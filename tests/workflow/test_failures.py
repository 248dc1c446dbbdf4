"""A job that fails: what is still built, what is shown of it, and what is kept."""

from __future__ import annotations

import pytest
from tests.unit.plans import edited
from tests.workflow.conftest import CONFIG, TARGETS, Checkout

pytestmark = pytest.mark.slow


def test_a_conversion_that_fails_holds_back_its_own_target_and_the_report_shows_the_rest(built: Checkout) -> None:
    variants = {"fp16": {}, "odd": {"base": "int4", "options": {"group_size": -7}}}
    candidates = ["openvino/odd", "openvino/fp16"]
    built.configure(
        edited(CONFIG, "models.tiny.formats.openvino", variants),
        edited(TARGETS, "targets.intel-openvino.candidates", candidates),
    )
    output = built.snakemake(check=False)
    assert "group_size is -7" in output  # the last lines of its log
    assert "artifacts/report/index.html shows what was built" in output
    page = (built.folder / "artifacts/report/index.html").read_text(encoding="utf-8")
    assert "<li><code>tiny/openvino/odd</code></li>" in page
    assert "<li><code>tiny/intel-openvino</code></li>" in page
    assert 'data-sort="openvino/fp16"' in page
    assert list((built.folder / "artifacts/releases").glob("*/cpu-llamacpp/tiny/manifest.json"))
    built.configure(CONFIG, TARGETS)
    assert built.planned() == []  # the failed run has cost nothing that was there
