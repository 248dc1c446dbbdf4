"""Digests: what changes them and what must not."""

import os
from pathlib import Path

import pytest

from hallmark import digest

SOURCE = '"""What it is for."""\nLIMIT = 3\n\n\ndef limit(x):\n    """Cut."""\n    return min(x, LIMIT)\n'


@pytest.mark.parametrize(
    "edited",
    [
        SOURCE + "# a comment\n",
        SOURCE.replace("Cut.", "Cut at the limit."),
        SOURCE.replace("What it is for.", "Something else."),
        SOURCE.replace("min(x, LIMIT)", "min(\n        x,\n        LIMIT,\n    )"),
    ],
)
def test_comments_docstrings_and_layout_do_not_change_the_digest_of_code(edited: str) -> None:
    assert digest.of_source(edited) == digest.of_source(SOURCE)


@pytest.mark.parametrize("edited", [SOURCE.replace("3", "4"), SOURCE.replace("min", "max"), SOURCE + "x = 'text'\n"])
def test_what_code_does_changes_its_digest(edited: str) -> None:
    assert digest.of_source(edited) != digest.of_source(SOURCE)


def test_key_order_does_not_change_the_digest_of_a_value() -> None:
    assert digest.of_value({"a": 1, "b": [2]}) == digest.of_value({"b": [2], "a": 1})
    assert digest.of_value({"a": 1}) != digest.of_value({"a": 1.5})


def test_not_a_number_has_no_digest() -> None:
    with pytest.raises(ValueError, match="JSON"):
        digest.of_value({"a": float("nan")})


def test_memory_hashes_again_after_a_write_that_sets_an_old_time_stamp(tmp_path: Path) -> None:
    file, memory = tmp_path / "weights", digest.Memory(tmp_path / "digests.sqlite")
    file.write_bytes(b"one")
    before, stat = memory.of_file(file), file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert memory.of_file(file) == digest.of_file(file) != before


def test_memory_is_kept_between_runs_and_does_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, path = tmp_path / "weights", tmp_path / "state" / "digests.sqlite"
    file.write_bytes(b"one")
    memory = digest.Memory(path)
    first = memory.of_file(file)
    memory.save()
    monkeypatch.setattr(digest, "of_file", lambda _: pytest.fail("read the file again"))
    assert digest.Memory(path).of_file(file) == first


def test_a_broken_memory_only_costs_time(tmp_path: Path) -> None:
    file, path = tmp_path / "weights", tmp_path / "digests.sqlite"
    file.write_bytes(b"one")
    path.write_bytes(b"not a database, and long enough that it is looked at" * 100)
    memory = digest.Memory(path)
    assert memory.of_file(file) == digest.of_file(file)
    memory.save()


def test_a_folder_is_described_by_relative_names_and_without_the_marker_of_snakemake(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"bb")
    (tmp_path / ".snakemake_timestamp").touch()
    found = digest.describe(tmp_path)
    assert list(found) == ["b", "sub/a"]
    assert found["b"]["size"] == 2


def test_a_link_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match="not a regular file"):
        digest.describe(tmp_path)


def test_renaming_a_file_changes_the_digest_of_its_tree(tmp_path: Path) -> None:
    entry: digest.FileDigest = {"size": 1, "sha256": "0" * 64}
    assert digest.of_tree({"a": entry}) != digest.of_tree({"b": entry})
