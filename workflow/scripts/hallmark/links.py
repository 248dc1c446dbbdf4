"""Readable names of store entries: links below `artifacts/`. The store itself never reads one."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from hallmark import store

READABLE = Path("artifacts")


def point(name: str, entry: Path) -> None:
    """Make or move the link `artifacts/<name>` to an entry's files, in one step. A file or folder there is an error."""
    link = READABLE / name
    relative = os.path.relpath(entry / store.FILES, link.parent)
    if link.is_symlink() and str(link.readlink()) == relative:
        return
    if link.exists() and not link.is_symlink():
        raise FileExistsError(f"{link}: there is a file or folder where a link to {entry} belongs; move it away")
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}-{uuid.uuid4().hex[:6]}")
    fresh.symlink_to(relative)
    fresh.replace(link)
