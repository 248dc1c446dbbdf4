"""Values by their bits, against numpy's own account of them, and in memory that does not grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases.checkpoints import Tensors, bfloat16, empty_file, safetensors

from hallmark import checkpoint
from hallmark.lint import values
from hallmark.lint.findings import Finding
from hallmark.progress import heard_by

SPECIAL = [0.0, -0.0, 1.0, -65504.0, 65519.0, 65520.0, -65536.0, 1e6, np.inf, -np.inf, np.nan, 1e-45, -3e38]


def lint(folder: Path, tensors: Tensors) -> list[Finding]:
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    with heard_by(lambda *_: None):
        return list(values.check(checkpoint.of_folder(folder), folder))


def counts(folder: Path, dtype: str, data: bytes, elements: int) -> values.Counts | None:
    (folder / "model.safetensors").write_bytes(safetensors({"a": (dtype, (elements,), data)}))
    weights = checkpoint.of_folder(folder).weights["model.safetensors"]
    return values.count(folder / "model.safetensors", weights, weights.tensors["a"])


def as_bfloat16(numbers: NDArray[Any]) -> tuple[bytes, NDArray[Any]]:
    data = bfloat16(numbers)
    return data, (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("dtype", ["F64", "F32", "BF16", "F16"])
def test_counts_are_those_of_numpy(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "WINDOW", 64)  # so that there are many, and a last one that is shorter
    numbers = np.concatenate([SPECIAL, np.random.default_rng(0).normal(0, 1e5, 1000)])
    with np.errstate(over="ignore"):
        if dtype == "BF16":
            data, seen = as_bfloat16(numbers)
        else:
            seen = numbers.astype({"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype])
            data = seen.tobytes()
        halves = seen.astype(np.float16)
    found = counts(tmp_path, dtype, data, len(seen))
    assert found is not None
    assert (found.nan, found.infinite) == (np.isnan(seen).sum(), np.isinf(seen).sum())
    if dtype != "F16":
        assert found.beyond == (~np.isfinite(halves)).sum()


def test_what_float32_cannot_hold_counts_as_infinite_in_float64(tmp_path: Path) -> None:
    found = counts(tmp_path, "F64", np.array([3.4028234e38, 3.41e38, -1e300]).tobytes(), 3)
    assert found is not None
    assert (found.infinite, found.nan) == (2, 0)


@pytest.mark.parametrize(("dtype", "nan", "infinite"), [("F8_E4M3", 2, 0), ("F8_E5M2", 6, 2)])
def test_eight_bit_floats(tmp_path: Path, dtype: str, nan: int, infinite: int) -> None:
    found = counts(tmp_path, dtype, bytes(range(256)), 256)
    assert found is not None
    assert (found.nan, found.infinite) == (nan, infinite)


def test_whole_numbers_are_left_alone(tmp_path: Path) -> None:
    assert counts(tmp_path, "I32", b"\xff" * 8, 2) is None
    assert counts(tmp_path, "BOOL", b"\x01\x01", 2) is None


def test_findings_name_tensor_and_counts_and_stay_few(tmp_path: Path) -> None:
    bad = np.full((2, 2), np.nan, np.float32).tobytes()
    findings = lint(tmp_path, {f"t{number:02}": ("F32", (2, 2), bad) for number in range(25)})
    assert [finding.code for finding in findings] == ["non_finite"] * 21
    assert findings[0].place == "t00"
    assert findings[0].message == "4 NaN and 0 infinite of 4 values"
    assert findings[-1].message == "and 5 tensors more with NaN or infinite values"


def test_values_beyond_float16_ask_for_a_format_that_has_more(tmp_path: Path) -> None:
    (finding,) = lint(tmp_path, {"a": ("F32", (2,), np.array([7e4, -8e4], np.float32).tobytes())})
    assert (finding.code, finding.trait) == ("beyond_float16", "float16")
    assert finding.message == "2 of 2 values beyond float16's 65504, the largest is 80000"


def test_matrices_of_zeros_are_a_warning_and_biases_are_not(tmp_path: Path) -> None:
    zeros: Tensors = {"weight": ("F32", (2, 2), bytes(16)), "bias": ("F32", (2,), bytes(8))}
    assert [(item.code, item.place) for item in lint(tmp_path, zeros)] == [("all_zero", "weight")]


def test_a_tensor_that_is_cut_off_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": ("F32", (2, 2), bytes(16))})[:-4])
    with heard_by(lambda *_: None):
        assert list(values.check(checkpoint.of_folder(tmp_path), tmp_path)) == []


@pytest.mark.parametrize(
    ("other", "same"),
    [(("F32", (4,), b"abcd" * 4), True), (("F32", (4,), b"abce" * 4), False), (("F32", (2, 2), b"abcd" * 4), False)],
)
def test_tied_tensors_are_the_same_when_their_bytes_are(tmp_path: Path, other: Any, same: bool) -> None:
    tensors: Tensors = {"first": ("F32", (4,), b"abcd" * 4), "second": other}
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
    found = checkpoint.of_folder(tmp_path)
    assert values.same(found, tmp_path, "first", "second") is same
    assert values.same(found, tmp_path, "first", "not there")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_largest_tensor(tmp_path: Path) -> None:
    """A tensor of 4 GB, of which the disk holds nothing."""
    empty_file(tmp_path / "model.safetensors", {"a": (1 << 16, 1 << 15)})
    program = (
        "import sys\nfrom pathlib import Path\nfrom hallmark import checkpoint, processes\n"
        "from hallmark.lint import values\n"
        "folder = Path(sys.argv[1])\n"
        "assert [item.code for item in values.check(checkpoint.of_folder(folder), folder)] == ['all_zero']\n"
        "print(processes.peak_memory())"
    )
    result = subprocess.run([sys.executable, "-c", program, tmp_path], check=True, capture_output=True, text=True)
    assert int(result.stdout.split()[-1]) < 150_000_000
