"""Readers of evaluation and calibration data: from files as published to one JSON line for each item. Measures nothing.

READERS is the registry. A reader's function gets the files and its options and yields items; `prepare` writes them. The
same files and options give the same bytes, so a reader may use a library only if `libraries` names its version.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hallmark import options as known_options
from hallmark import questions
from hallmark.options import Setting

Item = dict[str, Any]
Options = Mapping[str, Any]

EVALUATION, CALIBRATION = "evaluation", "calibration"
NOT_PROSE = re.compile(r"^(file|image|media|category|[a-z]{2,3}(-[a-z]+)*):", re.IGNORECASE)
DROPPED_TAGS = frozenset({"ref", "references", "table", "gallery", "timeline", "math", "imagemap", "source", "score"})
LAST_SECTIONS = re.compile(
    r"^=+\s*(see also|notes|references|footnotes|sources|citations|bibliography|works cited|further reading"
    r"|external links|notes and references)\s*=+\s*$",
    re.IGNORECASE | re.MULTILINE,
)


class DataError(Exception):
    """Data cannot be read. The text names the file or option and what would do."""


@dataclass(frozen=True)
class Reader:
    """How one kind of data is read: options with their defaults and meanings, the file it leaves, what it is for.

    `libraries` and `code` (modules beside this one) decide its bytes too.
    """

    items: Callable[[Path, Options], Iterator[Item]]
    options: Options
    file: str
    about: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


def _wikipedia(folder: Path, options: Options) -> Iterator[Item]:
    """{"title", "text"} of each article of a MediaWiki dump, in the order of the dump, that belongs to the split."""
    for path in _matching(folder, "*.bz2"):
        for title, markup in _articles(path):
            if _split(title, options["calibration_share"]) == options["split"]:
                text = prose(markup)
                if len(text) >= options["min_chars"]:
                    yield {"title": title, "text": text}


def _split(title: str, share: float) -> str:
    """Which split an article is in, by its title alone: nothing moves when articles are added."""
    place = int.from_bytes(hashlib.sha256(title.encode()).digest()[:4], "big") / 2**32
    return CALIBRATION if place < share else EVALUATION


def _articles(path: Path) -> Iterator[tuple[str, str]]:
    """Title and markup of the articles (no redirects, no other name spaces) of a MediaWiki XML dump, bzip2."""
    with bz2.open(path) as stream:
        for _, element in ElementTree.iterparse(stream):
            if not element.tag.endswith("}page"):
                continue
            space = element.tag.removesuffix("page")
            title, markup = element.findtext(f"{space}title"), element.findtext(f"{space}revision/{space}text")
            plain = element.findtext(f"{space}ns") == "0" and element.find(f"{space}redirect") is None
            if plain and title and markup:
                yield title, markup
            element.clear()


def prose(markup: str) -> str:
    """The running text of wiki markup: paragraphs apart by an empty line, no tables, notes, files or lists of links."""
    import mwparserfromhell

    end = LAST_SECTIONS.search(markup)
    code = mwparserfromhell.parse(markup[: end.start()] if end else markup, skip_style_tags=True)
    for link in code.filter_wikilinks():
        if NOT_PROSE.match(str(link.title).strip()):
            _drop(code, link)
    for tag in code.filter_tags():
        if str(tag.tag).strip().lower() in DROPPED_TAGS:
            _drop(code, tag)
    text = re.sub(r"'{2,}", "", code.strip_code(normalize=True, collapse=True))
    return "\n\n".join(line for line in map(_tidy, text.splitlines()) if _is_sentence(line))


def _tidy(line: str) -> str:
    """Single spaces, and no empty brackets or lost commas where a template stood."""
    line = re.sub(r"\([\s,;]*\)", "", line)
    line = re.sub(r"([(])[\s,;]+", r"\1", line)
    return re.sub(r"\s+(?=[,.;:)])", "", re.sub(r"\s+", " ", line)).strip()


def _drop(code: Any, node: Any) -> None:
    with suppress(ValueError):  # inside one that was dropped before
        code.remove(node)


def _is_sentence(line: str) -> bool:
    """Keeps what reads as text; drops headings, rows that a broken table left and single links."""
    return len(line) >= 40 and line[-1] in ".!?:\"')”" and not re.search(r"[|{}\[\]<>]|\bhttps?:", line)


def _lee(folder: Path) -> Iterator[Item]:
    """The 50 documents of Lee, Pincombe and Welsh (2005), each pair rated by people from 0 to 1."""
    (corpus,), (ratings,) = _matching(folder, "lee.cor"), _matching(folder, "similarities0-1.txt")
    texts = corpus.read_text(encoding="latin-1").splitlines()
    rows = [[float(cell) for cell in line.split()] for line in ratings.read_text(encoding="ascii").splitlines()]
    if len(rows) != len(texts):
        raise DataError(f"{corpus.name} has {len(texts)} texts, {ratings.name} ratings for {len(rows)}")
    for first in range(len(texts)):
        for second in range(first + 1, len(texts)):
            yield {"a": texts[first], "b": texts[second], "score": rows[first][second], "set": "lee"}


def _words(folder: Path, pattern: str, name: str) -> Iterator[Item]:
    """Pairs of words and people's mean rating from 0 to 10, tab-separated, `#` for comments."""
    (path,) = _matching(folder, pattern)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            first, second, score = line.split("\t")
            yield {"a": first, "b": second, "score": float(score), "set": name}


SETS: Mapping[str, Callable[[Path], Iterator[Item]]] = {
    "lee": _lee,
    "wordsim353": lambda folder: _words(folder, "wordsim353.tsv", "wordsim353"),
    "simlex999": lambda folder: _words(folder, "simlex999.txt", "simlex999"),
}


def _rated_pairs(folder: Path, options: Options) -> Iterator[Item]:
    """{"a", "b", "score", "set"} of each pair of each set."""
    for name in options["sets"]:
        yield from SETS[name](folder)


def _articles_as_they_are(folder: Path, options: Options) -> Iterator[Item]:
    """{"title", "text"} of each line of a `.jsonl` file and of each whole `.txt` file, in the order of names."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".jsonl", ".txt"))
    if not found:
        raise DataError("no .jsonl or .txt file; name them with the source's `files`")
    for path in found:
        if path.suffix == ".txt":
            yield {"title": path.stem, "text": path.read_text(encoding="utf-8")}
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                article = json.loads(line)
                yield {"title": str(article.get("title", number)), "text": str(article["text"])}
            except (ValueError, KeyError, TypeError, AttributeError):
                raise DataError(f'{path.name}, line {number}: not {{"text": "..."}}') from None


def _multiple_choice(folder: Path, options: Options) -> Iterator[Item]:
    """{"context", "choices", "label"} of each labelled question."""
    try:
        yield from questions.read(folder, options)
    except questions.QuestionError as error:
        raise DataError(str(error)) from None


READERS: Mapping[str, Reader] = {
    "text": Reader(
        items=_articles_as_they_are,
        options={},
        file="text.jsonl",
        about='your own text: `.jsonl` files with a line {"title", "text"} for each article, or `.txt` files, one each',
    ),
    "wikipedia": Reader(
        items=_wikipedia,
        options={"split": EVALUATION, "calibration_share": 0.25, "min_chars": 2000},
        file="text.jsonl",
        about="articles of a MediaWiki dump (.bz2) without markup; `split` evaluation and calibration share no article",
        settings={
            "split": Setting("which of the articles", (EVALUATION, CALIBRATION)),
            "calibration_share": Setting("share of the articles that are for calibration", least=0),
            "min_chars": Setting("shorter articles are left out, in characters of their text", least=1),
        },
        libraries=("mwparserfromhell",),
    ),
    "rated_pairs": Reader(
        items=_rated_pairs,
        options={"sets": list(SETS)},
        file="pairs.jsonl",
        about="pairs of texts or words with people's rating: lee, wordsim353, simlex999",
        settings={"sets": Setting("which sets of pairs", tuple(SETS))},
    ),
    "multiple_choice": Reader(
        items=_multiple_choice,
        options=questions.OPTIONS,
        file=questions.FILE,
        about='labelled questions: `.jsonl` files of {"question", "choices", "label"}, or tasks of BIG-bench (`.json`)',
        settings=questions.SETTINGS,
        code=("hallmark.questions",),
    ),
}


def libraries(reader: str) -> dict[str, str]:
    """Versions of what else decides a reader's bytes."""
    return {name: metadata.version(name) for name in READERS[reader].libraries}


def check(reader: str, options: Options) -> list[str]:
    """What is wrong with a reader's name or options in a config, a line each."""
    if reader not in READERS:
        return [f"no reader {reader!r}, have {', '.join(READERS)}"]
    return known_options.check(options, READERS[reader].options, READERS[reader].settings)


def prepare(files: Path, reader: str, options: Options, out: Path) -> dict[str, Any]:
    """Read the folder `files` and write the reader's file into the folder `out`.

    Returns {"items", "characters"}. Raises DataError when an option or a file is wrong or nothing is left.
    """
    problems = check(reader, options)
    if problems:
        raise DataError("; ".join(problems))
    chosen = READERS[reader]
    count = characters = 0
    with (out / chosen.file).open("w", encoding="utf-8", newline="\n") as lines:
        for item in chosen.items(files, {**chosen.options, **options}):
            lines.write(json.dumps(item, ensure_ascii=False, sort_keys=True) + "\n")
            count += 1
            characters += sum(len(value) for key, value in item.items() if key in ("text", "a", "b", "context"))
    if not count:
        raise DataError(f"{reader}: nothing is left with {dict(options)}")
    return {"items": count, "characters": characters}


def _matching(folder: Path, pattern: str) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file() and fnmatch(path.name, pattern))
    if not found:
        raise DataError(
            f"no file {pattern} among {', '.join(sorted(path.name for path in folder.rglob('*'))) or 'none'}"
        )
    return found
