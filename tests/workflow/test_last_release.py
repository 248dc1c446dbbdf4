"""A second release that is compared with the first, with real Snakemake and engines on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.plans import edited
from tests.workflow.conftest import CONFIG, TARGETS, Checkout

from hallmark import release_checks

pytestmark = pytest.mark.slow

# No noise of a machine keeps such a limit open, and it is measured all the same.
LIMITS = {"release_decode_cpu_ratio": {"min": 0.001}, "release_size_ratio": {"min": 0.1}}
AGAINST = edited(
    TARGETS, "policies.default.causal-lm", {**TARGETS["policies"]["default"]["causal-lm"], "*/gguf/*": LIMITS}
)


def version(name: str) -> dict[str, Any]:
    return edited(CONFIG, "release", {"version": name})


@pytest.fixture(autouse=True)
def untouched(built: Checkout) -> Iterator[None]:
    """The configuration that is built comes back; what is released beside it stays."""
    yield
    built.configure(CONFIG, TARGETS)


def stored(built: Checkout, place: str) -> Any:
    """The newest JSON of this name in the store."""
    found = (built.folder / "artifacts/store").glob(place)
    return json.loads(max(found, key=lambda path: path.stat().st_mtime_ns).read_text(encoding="utf-8"))


def test_a_second_version_is_compared_with_the_first_and_then_there_is_nothing_to_do(built: Checkout) -> None:
    built.configure(version("second"), AGAINST)
    after = {"judge": 2, "select": 1, "bundle": 1, "release": 2, "report": 1}
    assert built.verbs() == {"measure_release": 2, **after}
    built.snakemake()
    assert built.planned() == []

    measured = stored(built, "measure_release/tiny/gguf/f16/cpu-llamacpp/*/files/measurement.json")
    assert set(LIMITS) < set(measured["metrics"])
    assert measured["metrics"]["release_decode_cpu_ratio"]["low"] is not None
    assert measured["conditions"]["release"]["variant"] == {"type": "Q8_0"}
    assert set(measured["conditions"]["engines"]) == {"artifact", "release"}
    sizes = [(built.folder / f"artifacts/tiny/gguf/{name}/model.gguf").stat().st_size for name in ("q8_0", "f16")]
    assert measured["metrics"]["release_size_ratio"]["value"] == pytest.approx(sizes[0] / sizes[1])
    assert {gate["verdict"] for gate in verdict(built, "f16")["gates"]} == {"pass"}

    same = verdict(built, "q8_0")
    assert same["verdict"] == "pass"
    assert (
        "1 of 1 gates passed; release_decode_cpu_ratio does not apply: it is the artifact of release test-"
        in (same["why"])
    )
    latest = built.folder / "artifacts/releases/latest"
    assert release_checks.verify(latest) == []
    assert latest.readlink().name.startswith("second-")

    built.configure(version("third"))
    assert built.verbs() == after  # the same bytes were released twice, so what was measured holds


def verdict(built: Checkout, variant: str) -> Any:
    return stored(built, f"judge/tiny/gguf/{variant}/cpu-llamacpp/*/files/verdict.json")
