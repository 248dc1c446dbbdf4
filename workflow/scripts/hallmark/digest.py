"""Digests of files, folders, values and code. Decides nothing about what a digest is used for.

Large files are hashed once: their digest is remembered under (device, inode, size, mtime_ns, ctime_ns), so a plan over
a full store costs one `stat` a file, while any write, also one that sets an old time stamp, changes the ctime.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

Described = dict[str, "FileDigest"]


class FileDigest(TypedDict):
    """Size in bytes and sha256 (hexadecimal) of one file."""

    size: int
    sha256: str


def of_value(value: Any) -> str:
    """sha256 of a JSON value; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def of_file(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_tree(files: Mapping[str, FileDigest]) -> str:
    """One digest for a folder: sha256 over the sorted lines `<sha256>  <size>  <relative path>`."""
    lines = (f"{entry['sha256']}  {entry['size']}  {name}\n" for name, entry in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Memory:
    """What the digests of files were when last seen, in an SQLite file that many processes may use at once.

    A memory that cannot be opened or written (another user's folder, a full disk) only costs time.
    """

    def __init__(self, path: Path) -> None:
        self._seen: dict[str, str] = {}
        self._fresh: dict[str, str] = {}
        self._path = path
        if path.exists():
            try:
                with closing(self._connect()) as database:
                    self._seen = dict(database.execute("SELECT identity, sha256 FROM digests"))
            except sqlite3.Error:
                self._seen = {}

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=5, isolation_level=None)
        database.execute("CREATE TABLE IF NOT EXISTS digests (identity TEXT PRIMARY KEY, sha256 TEXT NOT NULL)")
        return database

    @staticmethod
    def _identity(path: Path) -> str:
        stat = path.stat()
        return f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"

    def of_file(self, path: Path) -> str:
        """sha256 of a file, from memory when the file is the one that was hashed before."""
        identity = self._identity(path)
        found = self._seen.get(identity)
        if found is None:
            found = of_file(path)
            if self._identity(path) == identity:  # else it changed while it was read
                self._seen[identity] = self._fresh[identity] = found
        return found

    def save(self) -> None:
        """Write what was learnt since the memory was opened."""
        if not self._fresh:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as database:
                database.execute("BEGIN")  # or each row would be synced by itself
                database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?)", list(self._fresh.items()))
                database.execute("COMMIT")
            self._fresh = {}
        except (sqlite3.Error, OSError):
            pass


def describe(folder: Path, memory: Memory | None = None) -> Described:
    """Every regular file below a folder by its relative path. Raises ValueError on a link, which may lead out."""
    found: Described = {}
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(root) / name
            if name == ".snakemake_timestamp":
                continue
            if path.is_symlink() or not path.is_file():
                raise ValueError(f"{path}: not a regular file; a store entry holds regular files only")
            sha256 = memory.of_file(path) if memory else of_file(path)
            found[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": sha256}
    return found


@cache
def of_code(module: str) -> str:
    """Digest of a module's syntax tree without docstrings, so neither a comment nor a line break changes it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module {module!r} to take the digest of")
    return of_source(Path(spec.origin).read_text(encoding="utf-8"))


def of_source(source: str) -> str:
    """Digest of Python source as `of_code` takes it."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _has_docstring(
            node
        ):
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
