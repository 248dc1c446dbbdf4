"""Some defects of the catalogue on the demo's artifacts, by their inspection alone; skipped where nothing was built."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutations import artifacts, on_artifacts, subjects

pytestmark = pytest.mark.slow

BUILT = subjects.ROOT / "artifacts"
NAMES = ("minilm/gguf/q8_0", "minilm/onnx/fp32", "minilm/openvino/int8")
QUICK = (
    "two layers' weights swapped", "two layers' norms swapped", "one NaN", "two tokens swapped",
    "pooling by the first token",
)  # fmt: skip

if not all((BUILT / name).exists() for name in NAMES):
    pytest.skip("the demo was not built here: run the first command of the README", allow_module_level=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_artifact_passes_and_a_spoilt_one_fails(name: str, tmp_path: Path) -> None:
    subject = subjects.read(BUILT, name, subjects.TARGETS)
    sound = on_artifacts.judged(subject, subject.files)
    assert [gate for gate in sound if on_artifacts.source_of(subject, gate) not in ("accuracy", "speed")] == []
    tried = [one for one in artifacts.MUTATIONS if one.name in QUICK and name in one.subjects]
    assert len(tried) == len(QUICK)
    for mutation in tried:
        failed = on_artifacts.try_files(mutation, subject, BUILT, tmp_path, accuracy=False)
        assert set(failed) & set(mutation.caught_by), f"{mutation.name}: {failed}"
