"""The store: entries that are whole or absent, each under the key of what it is made from. Knows nothing of the plan.

An entry is `<store>/<verb>/<subject>/<key>/` with `files/` and a `manifest.json` that lists every file with its size
and sha256. It is written under a unique temporary name on the same file system, synced, and renamed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hallmark import digest

MANIFEST = "manifest.json"
READY = "ready"  # an empty file for Snakemake, which removes outputs before it runs a job; the manifest is the truth
FILES = "files"
FORMAT_VERSION = 1
MODE = 0o444  # others may read a shared store whatever this user's umask is, and nobody edits an entry by mistake


class Damaged(Exception):
    """An entry does not hold what its manifest lists."""


@dataclass(frozen=True)
class Entry:
    """One entry that is in the store; `manifest` as read from its file."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def files(self) -> Path:
        return self.path / FILES

    @property
    def digest(self) -> str:
        """Tree digest of the files (see `digest.of_tree`)."""
        return str(self.manifest["digest"])

    def json(self, name: str) -> Any:
        """The content of one JSON file of the entry."""
        return json.loads((self.files / name).read_text(encoding="utf-8"))


def read(path: Path) -> Entry:
    """Open an entry by its folder without checking its files. Raises Damaged when its manifest is not one."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["version"] != FORMAT_VERSION:
            raise Damaged(f"{path / MANIFEST}: version {manifest['version']}, this program reads {FORMAT_VERSION}")
        if digest.of_tree(manifest["files"]) != manifest["digest"]:
            raise Damaged(f"{path / MANIFEST}: its list of files does not have the digest it states")
    except FileNotFoundError:
        raise Damaged(f"{path}: no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path / MANIFEST}: not a manifest ({error})") from None
    return Entry(path, manifest)


def verify(path: Path, memory: digest.Memory | None = None) -> Entry:
    """Open an entry and check every file against the manifest. Raises Damaged, naming the first file that differs."""
    entry = read(path)
    expected: Mapping[str, digest.FileDigest] = entry.manifest["files"]
    try:
        found = digest.describe(entry.files, memory)
    except (ValueError, OSError) as error:
        raise Damaged(f"{path}: {error}") from None
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            raise Damaged(f"{entry.files / name}: missing")
        if name not in expected:
            raise Damaged(f"{entry.files / name}: not in the manifest")
        if found[name] != expected[name]:
            want, have = expected[name], found[name]
            raise Damaged(
                f"{entry.files / name}: {have['size']} bytes, sha256 {have['sha256'][:12]}; "
                f"the manifest says {want['size']} bytes, {want['sha256'][:12]}"
            )
    return entry


@contextmanager
def writing(
    store: Path, final: Path, header: Mapping[str, Any], memory: digest.Memory | None = None
) -> Iterator[Draft]:
    """Write an entry: fill `draft.files`; it appears at `final` when the block ends, or not at all when it raises.

    `header` is what the manifest states besides the files (verb, subject, key, components).
    """
    clear_abandoned(store)
    with _temporary(store) as folder:
        (folder / FILES).mkdir()
        draft = Draft(folder, {})
        yield draft
        _commit(store, draft, final, header, memory)


@contextmanager
def _temporary(store: Path) -> Iterator[Path]:
    """A folder of a unique name that is gone at the end. Its lock is held meanwhile: others see that it is in use."""
    while True:
        folder = store / ".tmp" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        try:
            lock = (folder / "lock").open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / "lock").stat().st_ino == os.fstat(lock.fileno()).st_ino:
                break
        except FileNotFoundError:
            continue  # cleared by another process between the two calls
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


@dataclass
class Draft:
    """An entry being written. `folder` also has room for scratch files; `notes` go into the manifest as they are."""

    folder: Path
    notes: dict[str, Any]

    @property
    def files(self) -> Path:
        return self.folder / FILES

    def scratch(self, name: str) -> Path:
        """A folder beside the files that is gone when the entry is written."""
        path = self.folder / "scratch" / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def _commit(store: Path, draft: Draft, final: Path, header: Mapping[str, Any], memory: digest.Memory | None) -> None:
    settle(draft.files)
    files = digest.describe(draft.files, memory)
    manifest = {
        "version": FORMAT_VERSION,
        **header,
        "digest": digest.of_tree(files),
        "files": files,
        "notes": draft.notes,
    }
    ready = draft.folder / "ready"
    ready.mkdir()
    draft.files.rename(ready / FILES)
    (ready / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    mark(ready)
    settle(ready)
    final.parent.mkdir(parents=True, exist_ok=True)
    with (store / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_whole(store, final, memory):
            mark(final)  # another run wrote the same key meanwhile; its entry is as good
            return
        if final.exists():
            shutil.rmtree(final)  # Snakemake makes the folder of an output before the job starts
        ready.rename(final)
        open_folders(store, final)
        sync_folder(final.parent)


def open_folders(root: Path, place: Path) -> None:
    """Let others read the folders between `root` and an entry, whatever this user's umask is: Snakemake may have made
    them. The mode of `root` itself is its owner's affair."""
    for folder in place.parents[: len(place.relative_to(root).parts) - 1]:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o055 != 0o055:
            with suppress(PermissionError):  # another user's, who has opened it, or not
                folder.chmod(mode | 0o055)


def is_whole(store: Path, path: Path, memory: digest.Memory | None = None) -> bool:
    """Whether an entry is there and verifies; a damaged one is set aside."""
    if not (path / MANIFEST).exists():
        return False
    try:
        verify(path, memory)
    except Damaged:
        set_aside(store, path)
        return False
    return True


def mark(path: Path) -> None:
    """Make the file that Snakemake looks for in an entry, where it is missing."""
    if not (path / READY).exists():
        (path / READY).touch(mode=0o644)


def unmark(path: Path) -> None:
    """Take the mark from an entry: a job looks whether it holds, and makes it again or marks it."""
    (path / READY).unlink(missing_ok=True)


def settle(folder: Path) -> None:
    """Give files one mode whatever the umask, and bring them to the disk before the folder gets its name."""
    for root, _, files in os.walk(folder, topdown=False):
        for name in files:
            path = Path(root) / name
            if stat.S_IMODE(path.stat().st_mode) != MODE:
                path.chmod(MODE)
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        Path(root).chmod(0o755)
        sync_folder(Path(root))


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(store: Path, path: Path) -> Path:
    """Move a damaged entry out of the way, for a person to look at; `hallmark gc` removes it."""
    place = store / ".damaged" / f"{'-'.join(path.relative_to(store).parts)}-{uuid.uuid4().hex[:6]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # another run has set it aside meanwhile
        path.rename(place)
    return place


def clear_abandoned(store: Path) -> list[Path]:
    """Remove temporary folders whose writer is dead (nobody holds their lock). Returns what was removed."""
    removed = []
    for folder in sorted((store / ".tmp").glob("*")):
        try:
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
        except FileNotFoundError:
            with suppress(OSError):  # just being made, or its writer died before it had a lock
                folder.rmdir()
        except (BlockingIOError, PermissionError):
            continue  # in use, or another user's
    return removed
