"""Readers: what they keep of published files, that splits are disjoint, and what they say of wrong options."""

from __future__ import annotations

import bz2
import json
from pathlib import Path
from typing import Any

import pytest

from hallmark import datasets

PAGE = """  <page><title>{title}</title><ns>{space}</ns><id>1</id>{redirect}
    <revision><id>2</id><text xml:space="preserve">{text}</text></revision></page>
"""
MARKUP = """{{Infobox|name=x}}
[[File:A.jpg|thumb|A [[caption]] that is long enough to be taken for a sentence of the article.]]
'''Anarchism''' ({{lang|el|x}}) is a [[theory|philosophy]],&lt;ref&gt;Note.&lt;/ref&gt; and more &amp;amp; more.
{| class="wikitable"
|-
| A cell of a table that is long enough to be taken for a sentence.
|}
== History ==
A second paragraph with a [https://example.org link to a page] in the middle of it.
* [[Only a link]]
== See also ==
What comes after the last sections of an article is left out of the text altogether.
"""
PROSE = "Anarchism is a philosophy, and more & more.\n\nA second paragraph with a link to a page in the middle of it."


def dump(folder: Path, pages: list[tuple[str, str, str, str]]) -> Path:
    body = "".join(PAGE.format(title=t, space=s, redirect=r, text=x) for t, s, r, x in pages)
    text = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">\n{body}</mediawiki>\n'
    (folder / "enwiki.bz2").write_bytes(bz2.compress(text.encode()))
    return folder


def read(folder: Path, reader: str, out: Path, **options: Any) -> list[dict[str, Any]]:
    out.mkdir(parents=True, exist_ok=True)
    datasets.prepare(folder, reader, options, out)
    lines = (out / datasets.READERS[reader].file).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_articles_without_their_markup(tmp_path: Path) -> None:
    dump(tmp_path, [
        ("Anarchism", "0", "", MARKUP),
        ("AccessibleComputing", "0", '<redirect title="x" />', MARKUP),
        ("Talk:Anarchism", "1", "", MARKUP),
    ])  # fmt: skip
    found = read(tmp_path, "wikipedia", tmp_path / "out", min_chars=10, calibration_share=0)
    assert found == [{"title": "Anarchism", "text": PROSE}]


def test_splits_share_no_article_and_do_not_move(tmp_path: Path) -> None:
    pages = [(f"Article {number}", "0", "", MARKUP) for number in range(40)]
    dump(tmp_path, pages)
    options = {"min_chars": 10, "calibration_share": 0.25}
    evaluation = read(tmp_path, "wikipedia", tmp_path / "a", **options)
    calibration = read(tmp_path, "wikipedia", tmp_path / "b", split="calibration", **options)
    titles = [{article["title"] for article in split} for split in (evaluation, calibration)]
    assert titles[0] | titles[1] == {title for title, *_ in pages}
    assert not titles[0] & titles[1]
    assert titles[1]
    dump(tmp_path, pages[::2])
    assert {a["title"] for a in read(tmp_path, "wikipedia", tmp_path / "c", **options)} <= titles[0]


def test_short_articles_are_left_out_and_nothing_left_is_an_error(tmp_path: Path) -> None:
    dump(tmp_path, [("Anarchism", "0", "", MARKUP)])
    with pytest.raises(datasets.DataError, match="nothing is left"):
        read(tmp_path, "wikipedia", tmp_path / "out")


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    dump(tmp_path, [(f"Article {number}", "0", "", MARKUP) for number in range(5)])
    for name in ("a", "b"):
        read(tmp_path, "wikipedia", tmp_path / name, min_chars=10)
    assert (tmp_path / "a/text.jsonl").read_bytes() == (tmp_path / "b/text.jsonl").read_bytes()


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "lee.cor").write_bytes("One £ text.\nA second text.\nA third.\n".encode("latin-1"))
    (tmp_path / "similarities0-1.txt").write_text("1\t0.3\t0.5\n0\t1\t0.7\n0\t0\t1\n")
    (tmp_path / "wordsim353.tsv").write_text("# Word 1\tWord 2\tHuman (mean)\ntiger\tcat\t7.35\n")
    (tmp_path / "simlex999.txt").write_text("# comment\nold\tnew\t1.58\n")
    return tmp_path


def test_rated_pairs_of_each_set(pairs: Path) -> None:
    found = read(pairs, "rated_pairs", pairs / "out")
    assert found[0] == {"a": "One £ text.", "b": "A second text.", "score": 0.3, "set": "lee"}
    assert [item["score"] for item in found] == [0.3, 0.5, 0.7, 7.35, 1.58]
    assert [item["set"] for item in found][3:] == ["wordsim353", "simlex999"]
    assert len(read(pairs, "rated_pairs", pairs / "out", sets=["wordsim353"])) == 1


def test_missing_files_and_ratings_that_do_not_fit_are_named(pairs: Path) -> None:
    (pairs / "lee.cor").write_text("One text.\n")
    with pytest.raises(datasets.DataError, match=r"lee\.cor has 1 texts, similarities0-1\.txt ratings for 3"):
        read(pairs, "rated_pairs", pairs / "out")
    (pairs / "lee.cor").unlink()
    with pytest.raises(datasets.DataError, match=r"no file lee\.cor among .*wordsim353\.tsv"):
        read(pairs, "rated_pairs", pairs / "out")


def test_unknown_readers_options_splits_and_sets(pairs: Path) -> None:
    assert datasets.check("wiki", {}) == ["no reader 'wiki', have text, wikipedia, rated_pairs, multiple_choice"]
    assert datasets.check("rated_pairs", {"set": []}) == ["no option 'set', have sets (did you mean sets?)"]
    with pytest.raises(datasets.DataError, match="no option"):
        read(pairs, "rated_pairs", pairs / "out", set=["lee"])
    with pytest.raises(datasets.DataError, match="sets: 'le' is none of lee"):
        read(pairs, "rated_pairs", pairs / "out", sets=["le"])
    with pytest.raises(datasets.DataError, match="split: 'test' is none of evaluation, calibration"):
        read(dump(pairs, []), "wikipedia", pairs / "out", split="test")


def test_a_library_that_decides_bytes_is_named_with_its_version() -> None:
    assert set(datasets.libraries("wikipedia")) == {"mwparserfromhell"}
    assert datasets.libraries("rated_pairs") == {}


def test_own_text_is_read_from_lines_and_from_whole_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"title": "one", "text": "first"}\n{"text": "second"}\n')
    (tmp_path / "in/b.txt").write_text("third\n")
    assert datasets.prepare(tmp_path / "in", "text", {}, tmp_path / "out")["items"] == 3
    lines = [json.loads(line) for line in (tmp_path / "out/text.jsonl").read_text().splitlines()]
    assert [line["title"] for line in lines] == ["one", "2", "b"]


def test_own_text_with_a_bad_line_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"text": "first"}\n{"txt": 3}\n')
    with pytest.raises(datasets.DataError, match=r"a\.jsonl, line 2"):
        datasets.prepare(tmp_path / "in", "text", {}, tmp_path / "out")
