"""The rebuild proof's comparison of files; what it does with a real conversion is for the slow tests."""

from hallmark import rebuild


def write(folder, **files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_equal_files_have_nothing_to_say(tmp_path):
    one, other = (write(tmp_path / name, a=b"abc", b=b"") for name in ("one", "other"))
    assert rebuild.compare(one, other) == {"a": "", "b": ""}


def test_where_files_differ_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(rebuild, "PIECE", 4)
    one = write(tmp_path / "one", same=b"x", changed=b"0123456789", longer=b"0123", lost=b"y")
    other = write(tmp_path / "other", same=b"x", changed=b"01234X678Y", longer=b"012345", new=b"z")
    assert rebuild.compare(one, other) == {
        "changed": "2 of 10 bytes differ, the first at 5",
        "longer": "2 of 6 bytes differ, the first at 4",
        "lost": "only in the stored artifact",
        "new": "only in the rebuilt artifact",
        "same": "",
    }
