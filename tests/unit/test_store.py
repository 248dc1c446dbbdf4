"""The store: entries are whole or absent, and damage is found."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from hallmark import store

HEADER = {"verb": "convert", "subject": ["m", "f", "v"], "key": "0" * 12, "components": {}, "inputs": {}}


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    final = tmp_path / "store" / "convert" / "m" / "f" / "v" / ("0" * 12)
    with store.writing(tmp_path / "store", final, HEADER) as draft:
        (draft.files / "model.bin").write_bytes(b"weights" * 100)
        (draft.files / "sub").mkdir()
        (draft.files / "sub" / "config.json").write_text('{"a": 1}')
        (draft.scratch("work") / "huge").write_bytes(b"x")
        draft.notes["realised"] = "q4"
    return final


def damaged(entry: Path) -> str:
    with pytest.raises(store.Damaged) as error:
        store.verify(entry)
    return str(error.value)


def writable(path: Path) -> Path:
    path.chmod(0o644)
    return path


def test_an_entry_holds_its_files_and_notes_and_nothing_else(entry: Path, tmp_path: Path) -> None:
    found = store.verify(entry)
    assert sorted(found.manifest["files"]) == ["model.bin", "sub/config.json"]
    assert found.manifest["notes"] == {"realised": "q4"}
    assert found.json("sub/config.json") == {"a": 1}
    assert not list((tmp_path / "store" / ".tmp").iterdir())


def test_files_can_be_read_by_all_and_written_by_none_whatever_the_umask(tmp_path: Path) -> None:
    final, before = tmp_path / "store" / "x" / "k", os.umask(0o077)
    try:
        with store.writing(tmp_path / "store", final, HEADER) as draft:
            (draft.files / "a").write_bytes(b"a")
    finally:
        os.umask(before)
    assert (final / "files" / "a").stat().st_mode & 0o777 == 0o444
    assert final.stat().st_mode & 0o777 == 0o755
    assert final.parent.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700  # what the store's owner allows is for them to say


def test_a_block_that_raises_leaves_nothing(tmp_path: Path) -> None:
    final = tmp_path / "store" / "x" / "k"
    with pytest.raises(RuntimeError), store.writing(tmp_path / "store", final, HEADER) as draft:
        (draft.files / "half").write_bytes(b"half")
        raise RuntimeError("converter failed")
    assert not final.exists()
    assert not list((tmp_path / "store" / ".tmp").iterdir())


def test_truncated_flipped_lost_and_surplus_files_are_found(entry: Path) -> None:
    model = writable(entry / "files" / "model.bin")
    whole = model.read_bytes()
    model.write_bytes(whole[:-1])
    assert "model.bin: 699 bytes" in damaged(entry)
    model.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert "model.bin: 700 bytes, sha256" in damaged(entry)
    model.write_bytes(whole)
    assert store.verify(entry)
    (entry / "files" / "extra").write_bytes(b"")
    assert "extra: not in the manifest" in damaged(entry)
    (entry / "files" / "extra").unlink()
    model.unlink()
    assert "model.bin: missing" in damaged(entry)


def test_a_manifest_that_was_edited_or_cut_is_found(entry: Path) -> None:
    manifest = writable(entry / "manifest.json")
    text = manifest.read_text()
    manifest.write_text(text.replace('"size": 700', '"size": 699'))
    assert "does not have the digest" in damaged(entry)
    manifest.write_text(text[: len(text) // 2])
    assert "not a manifest" in damaged(entry)
    manifest.unlink()
    assert "no manifest.json" in damaged(entry)


def test_writing_over_a_whole_entry_keeps_it_and_over_a_damaged_one_replaces_it(entry: Path, tmp_path: Path) -> None:
    inode = (entry / "files" / "model.bin").stat().st_ino

    def again() -> None:
        with store.writing(tmp_path / "store", entry, HEADER) as draft:
            (draft.files / "model.bin").write_bytes(b"weights" * 100)

    again()
    assert (entry / "files" / "model.bin").stat().st_ino == inode
    writable(entry / "files" / "model.bin").write_bytes(b"broken")
    again()
    assert store.verify(entry)
    assert len(list((tmp_path / "store" / ".damaged").iterdir())) == 1


def test_an_empty_folder_that_snakemake_made_is_no_obstacle(tmp_path: Path) -> None:
    final = tmp_path / "store" / "x" / "k"
    final.mkdir(parents=True)
    with store.writing(tmp_path / "store", final, HEADER) as draft:
        (draft.files / "a").write_bytes(b"a")
    assert store.verify(final)


def _write_slowly(root: Path) -> None:
    with store.writing(root, root / "x" / "k", HEADER) as draft:
        (draft.files / "half").write_bytes(b"half")
        time.sleep(60)


def test_what_a_killed_writer_left_is_removed_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    writer = multiprocessing.get_context("fork").Process(target=_write_slowly, args=(root,))
    writer.start()
    deadline = time.monotonic() + 10
    while not list(root.glob(".tmp/*/files/half")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert store.clear_abandoned(root) == []
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join()
    assert len(store.clear_abandoned(root)) == 1
    assert not list((root / ".tmp").iterdir())
    assert not (root / "x" / "k").exists()


def test_a_writer_that_was_killed_before_it_had_a_lock_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".tmp/abc").mkdir(parents=True)
    store.clear_abandoned(tmp_path)
    assert not list((tmp_path / ".tmp").iterdir())
