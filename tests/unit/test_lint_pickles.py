"""Pickles are scanned for what they import, in every form that torch writes, and never loaded."""

from __future__ import annotations

import collections
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hallmark import checkpoint
from hallmark.lint import pickles


class Trap:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("touch LOADED",)


def lint(folder: Path) -> list[tuple[str, str]]:
    return [(item.code, item.place) for item in pickles.check(checkpoint.of_folder(folder), folder)]


@pytest.fixture(autouse=True)
def nothing_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "LOADED").exists()


def zipped(path: Path, content: object) -> None:
    """As torch.save writes since version 1.6: an archive with data.pkl inside."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, 2))


def test_what_a_dangerous_pickle_imports_is_named(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Trap()}))
    zipped(tmp_path / "other.pt", {"x": [Trap()]})
    findings = list(pickles.check(checkpoint.of_folder(tmp_path), tmp_path))
    assert [(item.code, item.place) for item in findings] == [
        ("dangerous_pickle", "other.pt"),
        ("dangerous_pickle", "pytorch_model.bin"),
    ]
    assert all("posix.system" in item.message for item in findings)


def test_a_harmless_one_is_no_finding_and_its_imports_are_known(tmp_path: Path) -> None:
    zipped(tmp_path / "pytorch_model.bin", collections.OrderedDict(x=1))
    assert lint(tmp_path) == []
    assert pickles.imports(tmp_path / "pytorch_model.bin") == {"collections.OrderedDict": "innocuous"}
    assert pickles.named(checkpoint.of_folder(tmp_path), tmp_path) == "collections.OrderedDict"


def test_a_pickle_that_breaks_off_is_dangerous_or_cannot_be_vouched_for(tmp_path: Path) -> None:
    """Loading runs what comes before the break."""
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps({"x": Trap()})[:-8])
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(collections.OrderedDict(x=1))[:-8])
    assert lint(tmp_path) == [("dangerous_pickle", "bad.pkl"), ("unreadable_pickle", "model.pkl")]
    (tmp_path / "bad.pkl").unlink()
    assert pickles.named(checkpoint.of_folder(tmp_path), tmp_path) == "nothing"


RAW = {
    "anything": random.Random(0).randbytes(1 << 16),
    "a text of 2^62 bytes": b"\x8d" + (1 << 62).to_bytes(8, "little") + bytes(100),
    "an import of nothing": b"\x93" + bytes(100),
    "an import of one text": b"\x8c\x01a\x93" + bytes(100),
}


@pytest.mark.parametrize("kind", RAW)
def test_raw_data_under_a_pickles_name_is_no_finding(tmp_path: Path, kind: str) -> None:
    (tmp_path / "openvino_model.bin").write_bytes(RAW[kind])
    assert lint(tmp_path) == []


def test_a_pickle_that_imports_before_it_fails_its_reader_cannot_be_vouched_for(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"ccollections\nOrderedDict\n\x93" + bytes(100))
    assert [code for code, _ in lint(tmp_path)] == ["unreadable_pickle"]
