"""`config/lock.yaml`: every source pinned by the sha256 of each file, with the facts that the plan computes with.

Reading, writing and comparing are cheap; `lock_sources` brings the sources. It knows nothing of the toolchains' locks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hallmark import checkpoint, gguf_facts, hub, sources
from hallmark.config import Config, ConfigError, load_yaml
from hallmark.lint import findings, report
from hallmark.options import no_such
from hallmark.packages import Unreachable
from hallmark.quantities import size as readable
from hallmark.source_errors import SourceError
from hallmark.sources import Gguf, Hub, Source

HEADER = "# Written by `hallmark lock`, which also shows what changed. What is built is decided by these digests.\n"
KINDS = ("models", "data")
Kind = Literal["models", "data"]


class _Pinned(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LockedFile(_Pinned):
    """One file: size in bytes and sha256."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Entry(_Pinned):
    """A pinned source. A hub's `source.revision` is a commit; `revision` is what the config asked for, if not that."""

    source: Source
    revision: str | None = None
    facts: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, LockedFile]

    def part(self, name: str) -> dict[str, dict[str, Any]]:
        """Files of one part ("weights", "docs", or "data" for all) as JSON: path -> {"size", "sha256"}."""
        wanted = (path for path in sorted(self.files) if name in ("data", sources.part_of(path)))
        return {path: self.files[path].model_dump() for path in wanted}

    @property
    def asked(self) -> sources.Hub | sources.Path | sources.Package | sources.Gguf:
        """The source as the config had it."""
        return self.source.model_copy(update={"revision": self.revision}) if self.revision else self.source


class Lock(_Pinned):
    """The whole file."""

    version: Literal[1] = 1
    models: dict[str, Entry] = Field(default_factory=dict)
    data: dict[str, Entry] = Field(default_factory=dict)

    def entries(self, kind: str) -> dict[str, Entry]:
        return self.models if kind == "models" else self.data


def read(path: Path) -> Lock:
    """The lock in a file; an empty one when there is no file. Raises ConfigError when it is not a lock."""
    if not path.exists():
        return Lock()
    try:
        return Lock.model_validate(load_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{path}: {place}: {first['msg']}; remove it and write it anew with: hallmark lock") from None


class _Line(dict[str, Any]):
    """A mapping that is written on one line."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _Line, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)
)


def dump(lock: Lock) -> str:
    """The lock as YAML: names and paths in order, a line for each file, so that a diff shows what changed."""
    content: dict[str, Any] = {"version": lock.version}
    for kind in KINDS:
        content[kind] = {name: _entry(entry) for name, entry in sorted(lock.entries(kind).items())}
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return HEADER + text


def _entry(entry: Entry) -> dict[str, Any]:
    written = entry.model_dump(mode="json", exclude_defaults=True)
    source = {"kind": entry.source.kind, **written["source"]}
    files = {path: _Line(written["files"][path]) for path in sorted(entry.files)}
    head = {"source": source} | {key: written[key] for key in ("revision", "facts") if key in written}
    return {**head, "files": files}


def write(lock: Lock, path: Path) -> None:
    """Replace the file in one step, so that a reader sees the old lock or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        written = Path(file.name)
        try:
            file.write(dump(lock))
            file.flush()
            os.fsync(file.fileno())
            written.chmod(path.stat().st_mode if path.exists() else 0o644)
            written.replace(path)
        except BaseException:
            written.unlink()
            raise


def check(kind: str, name: str, source: Any, lock: Lock) -> list[str]:
    """What keeps a source of the config from being used with this lock: a line, or nothing."""
    entry = lock.entries(kind).get(name)
    if entry is None:
        return [f"{kind}.{name}: no entry; pin it with: hallmark lock {name}"]
    if source not in (entry.asked, entry.source):
        was, now = sources.describe(entry.asked), sources.describe(source)
        changed = f"pins {was}, the config has {now}" if was != now else "pins the source with other `files`"
        return [f"{kind}.{name}: {changed}; pin it anew with: hallmark lock {name}"]
    return []


def lock_sources(config: Config, old: Lock, cache: Path, names: Iterable[str] = ()) -> tuple[Lock, list[str]]:
    """A new lock and what changed in it, a line each.

    Pins the sources called `names`, or without names those that `check` complains of. Entries that this config does not
    have are kept, as configs may share a lock. Raises ConfigError for an unknown name and a source that cannot be had.
    """
    wanted = {(kind, name): item.source for kind in KINDS for name, item in getattr(config, kind).items()}
    known = {name for _, name in wanted}
    for name in (names := list(names)):
        if name not in known:
            raise ConfigError(no_such("model or data", name, known))
    found = {kind: dict(old.entries(kind)) for kind in KINDS}
    for (kind, name), source in wanted.items():
        if name in names or (not names and check(kind, name, source, old)):
            try:
                code = kind == "models" and config.models[name].allow_remote_code
                found[kind][name] = pin(source, kind, cache, code)
            except (SourceError, Unreachable) as error:
                raise ConfigError(f"{kind}.{name}: {error}") from error
    new = Lock(models=found["models"], data=found["data"])
    return new, list(diff(old, new))


def pin(source: Any, kind: str, cache: Path, remote_code: bool = False) -> Entry:
    """Bring a source and take its digests: of everything for a model, of the data alone for data.

    Python files are left where they are, unless the source asks for them or its code is allowed (`remote_code`).
    Raises SourceError when it cannot be had or is no checkpoint.
    """
    pinned = source
    if isinstance(source, Hub):
        pinned = source.model_copy(update={"revision": hub.commit(source.repo, source.revision)})
    found = sources.listing(pinned, cache, code=remote_code)
    if kind == "data":
        found = {path: item for path, item in found.items() if sources.part_of(path) == "weights"}
    files = {path: _pin_file(item.open) for path, item in sorted(found.items())}
    facts = (
        _facts(pinned, {path: item.open for path, item in found.items()}, cache, remote_code)
        if kind == "models"
        else {}
    )
    asked = source.revision if isinstance(source, Hub) and source != pinned else None
    return Entry(source=pinned, revision=asked, facts=facts, files=files)


def _pin_file(opened: Callable[[], BinaryIO]) -> LockedFile:
    with opened() as stream:
        size, sha256 = sources.copied(stream, None)
    return LockedFile(size=size, sha256=sha256)


def _facts(source: Any, files: Mapping[str, Callable[[], BinaryIO]], cache: Path, remote_code: bool) -> dict[str, Any]:
    if isinstance(source, Gguf):
        (name,) = (path for path in files if path.endswith(".gguf"))
        with _extracted(files[name], cache) as path:
            return gguf_facts.read(path)
    found = checkpoint.read(files)
    errors = [item for item in report.of_headers(found, remote_code) if item.level == "error" and not item.trait]
    if errors:
        raise SourceError("\n  ".join(findings.line(item) for item in findings.as_json(errors)))
    return checkpoint.facts(found)


@contextmanager
def _extracted(opened: Callable[[], BinaryIO], cache: Path) -> Iterator[Path]:
    """A file on disk for a reader that maps it into memory."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=cache, suffix=".gguf") as copy, opened() as stream:
        sources.copied(stream, copy)
        copy.flush()
        yield Path(copy.name)


def diff(old: Lock, new: Lock) -> Iterator[str]:
    """What is different in the new lock: `+` added, `-` removed, `~` changed; nothing when nothing is."""
    for kind in KINDS:
        before, after = old.entries(kind), new.entries(kind)
        for name in sorted(before.keys() | after.keys()):
            place = f"{kind}.{name}"
            if name not in before:
                total = sum(file.size for file in after[name].files.values())
                source = sources.describe(after[name].source)
                yield f"+ {place}: {source}, {len(after[name].files)} files, {readable(total)}"
            elif name not in after:
                yield f"- {place}: {sources.describe(before[name].source)}"
            elif before[name] != after[name]:
                yield from _changed(place, before[name], after[name])


def _changed(place: str, old: Entry, new: Entry) -> Iterator[str]:
    if old.source != new.source:
        yield f"~ {place}: {sources.describe(old.source)} -> {sources.describe(new.source)}"
    for path in sorted(old.files.keys() | new.files.keys()):
        before, after = old.files.get(path), new.files.get(path)
        if before != after:
            yield f"~ {place}: {path}: {_short(before)} -> {_short(after)}"
    for fact in sorted(old.facts.keys() | new.facts.keys()):
        if old.facts.get(fact) != new.facts.get(fact):
            yield f"~ {place}: {fact}: {old.facts.get(fact)} -> {new.facts.get(fact)}"


def _short(file: LockedFile | None) -> str:
    return f"{file.sha256[:12]} ({readable(file.size)})" if file else "not there"
