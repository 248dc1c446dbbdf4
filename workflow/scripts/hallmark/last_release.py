"""Which released artifact the gates on `release_*` compare with. Publishes, measures and judges nothing.

It is what was last released for the same target and model before the version that the config names was first released.
A version's own releases never count, so publishing one moves no baseline, and a run with nothing to do stays one. Each
index names the release that `latest` pointed to when it was begun (`after`); this line is followed back. Only what the
line shows to have never been there counts as no release: one that is gone, damaged or out of line is an error, for
else a slower artifact would be released because nobody found what to compare it with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hallmark import digest, release_checks, toolchains
from hallmark.bundle import MANIFEST
from hallmark.config import ConfigError
from hallmark.options import no_such
from hallmark.release import AFTER, LATEST
from hallmark.release_checks import INDEX
from hallmark.toolchains import Toolchain

REMEDY = "restore it, or name the release to compare with as `release.against` in the config"
GONE = f"was released and has no {INDEX} that can be read; {REMEDY}"


@dataclass(frozen=True)
class Released:
    """An artifact of an earlier release: the release's name, the folder of its bundle, and what its manifest says."""

    release: str
    folder: Path
    manifest: Mapping[str, Any]

    @property
    def subject(self) -> str:
        return str(self.manifest["artifact"]["subject"])

    @property
    def digest(self) -> str:
        """Tree digest of the artifact's files."""
        return str(self.manifest["artifact"]["digest"])

    @property
    def bytes(self) -> int:
        """Size of the artifact's files."""
        return sum(self.manifest["files"][name]["size"] for name in self.manifest["artifact"]["files"])

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What it was made by: format, task and options of the variant."""
        made: Mapping[str, Any] = self.manifest["components"]["recipe"]
        return made

    @property
    def toolchain(self) -> str:
        """The beginning of the digest of the toolchain that made it and was measured to run it."""
        return str(self.manifest["components"]["toolchains"]["worker"])


def version_of(release: str) -> str:
    """The version in the name of a release's folder."""
    return release.rpartition("-")[0]


class LastReleases:
    """The releases in a folder, seen from a version; `memory` is a file of remembered digests."""

    def __init__(self, folder: Path, version: str, against: str | None, memory: Path) -> None:
        self._folder, self._version, self._against, self._memory = folder, version, against, memory
        self._found: dict[tuple[str, str], Released | str] = {}

    def find(self, target: str, model: str) -> Released | str:
        """The released artifact to compare with, all its files verified; in words why there is none, where a first
        release is in order.

        Raises ConfigError when there should be one and it is gone, damaged or cannot be told.
        """
        if (target, model) not in self._found:
            self._found[target, model] = self._find(target, model)
        return self._found[target, model]

    def _find(self, target: str, model: str) -> Released | str:
        if self._against:
            there = [name for name in self._names() if self._index(name)]
            if self._against not in there:
                raise ConfigError(f"release.against: {no_such('release', self._against, there)} in {self._folder}")
            return self._in(self._against, target, model) or f"release {self._against} has no {model} for {target}"
        line = self._line()
        for name in self._earlier(line):
            found = self._in(name, target, model)
            if found:
                return found
        self._check_end(line)
        return f"nothing was released of {model} for {target} before version {self._version}"

    def _line(self) -> list[str]:
        """From the latest release back; the last one may be gone."""
        link, line = self._folder / LATEST, list[str]()
        name = link.readlink().name if link.is_symlink() else None
        while name is not None and name not in line:
            line.append(name)
            name = (self._index(name) or {}).get(AFTER)
        return line

    def _earlier(self, line: list[str]) -> list[str]:
        """Those before the first release of this version."""
        own = [place for place, name in enumerate(line) if version_of(name) == self._version]
        return line[own[-1] + 1 :] if own else line

    def _check_end(self, line: list[str]) -> None:
        """Raise when the line ends without saying that nothing came before, and other versions were released."""
        last = self._index(line[-1]) if line else {}
        if last is None:
            raise ConfigError(f"{self._folder / line[-1]}: {GONE}")
        begins = AFTER in last
        others = [name for name in self._names() if version_of(name) != self._version and name not in line]
        if others and not begins:
            raise ConfigError(
                f"{self._folder}: nothing says in which order {', '.join(others)} were released; name the release to "
                "compare with as `release.against` in the config"
            )

    def _names(self) -> list[str]:
        """The releases that hold a bundle."""
        found = {path.parents[2] for path in self._folder.glob(f"*/*/*/{MANIFEST}")}
        return sorted(folder.name for folder in found if not folder.is_symlink())

    def _index(self, name: str) -> Mapping[str, Any] | None:
        """The index of a release; None where it is gone or cannot be read."""
        try:
            index = json.loads((self._folder / name / INDEX).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return index if isinstance(index, dict) and isinstance(index.get("published"), list) else None

    def _in(self, name: str, target: str, model: str) -> Released | None:
        """What a release holds of a model for a target, if anything. Raises ConfigError where that was altered."""
        index, folder = self._index(name), self._folder / name / target / model
        if index is None:
            raise ConfigError(f"{self._folder / name}: {GONE}")
        entries = [entry for entry in index["published"] if (entry["target"], entry["model"]) == (target, model)]
        if not entries:
            if (folder / MANIFEST).exists():
                raise ConfigError(f"{folder}: not in the index of its release; {REMEDY}")
            return None
        memory = digest.Memory(self._memory)
        manifest, problems = release_checks.check_bundle(folder, memory)
        memory.save()
        if not problems and digest.of_file(folder / MANIFEST) != entries[0]["bundle"]:
            problems = [f"{folder / MANIFEST}: not the bundle that the index names"]
        if problems:
            raise ConfigError("\n".join([*problems, f"{folder}: gates compare with it; {REMEDY}"]))
        return Released(name, folder, manifest)


def runtime(released: Released, known: Iterable[Toolchain]) -> tuple[Toolchain | None, Path]:
    """The toolchain that a released artifact was made and measured with: one of those `known`, or (None) one that is
    still in the cache folder; and its folder.

    Raises ConfigError when it is neither: in another one its speed would be that of something else than was released.
    """
    for toolchain in known:
        if toolchain.digest.startswith(released.toolchain):
            return toolchain, toolchain.folder
    for path in sorted((toolchains.cache_folder() / "toolchains").glob(f"*/{toolchains.MADE}")):
        made = json.loads(path.read_text(encoding="utf-8"))
        if made["digest"].startswith(released.toolchain) and made["platform"] == toolchains.local_platform():
            return None, path.parent
    raise ConfigError(
        f"{released.folder}: gates compare with it, and the toolchain that it ran in ({released.toolchain}) is not in "
        f"{toolchains.cache_folder()}; have the version of Hallmark that released it make it there, or take the "
        "gates on `release_*` out of the policy"
    )
