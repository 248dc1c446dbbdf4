"""Lint: what pickles import, by picklescan's reading of their opcodes. Nothing is unpickled, and no code runs."""

from __future__ import annotations

import logging
import pickletools
from collections.abc import Iterator
from pathlib import Path

from hallmark.checkpoint import Checkpoint
from hallmark.lint import files
from hallmark.lint.findings import Finding, found, some

DANGEROUS = "dangerous"
# Opcodes that import or call something, or end a pickle that is whole.
ACTS = frozenset((
    "GLOBAL", "INST", "STACK_GLOBAL", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD", "EXT1", "EXT2", "EXT4", "PERSID",
    "BINPERSID", "STOP",
))  # fmt: skip


def imports(path: Path) -> dict[str, str]:
    """What a file's pickles import (`os.system`) -> picklescan's word for it: innocuous, suspicious or dangerous.

    Raises ValueError when the file cannot be scanned to its end and nothing dangerous came before that.
    """
    from picklescan import scanner  # type: ignore[import-untyped]

    logging.getLogger("picklescan").setLevel(logging.CRITICAL)  # what it finds is returned too
    try:
        result = scanner.scan_file_path(str(path))
    except Exception as error:  # the file may have been made to fail any reader
        if _imports_nothing(path):
            return {}
        raise ValueError(f"{type(error).__name__}: {error}") from None
    seen = {f"{item.module}.{item.name}": item.safety.value for item in result.globals}
    if result.scan_err and DANGEROUS not in seen.values():
        raise ValueError(f"it breaks off after importing {some(sorted(seen))}")
    return seen


def _imports_nothing(path: Path) -> bool:
    """Whether loading a file ends with an error before anything is imported or called, as it does for raw numbers."""
    with path.open("rb") as file:
        try:
            for place, (opcode, _, _) in enumerate(pickletools.genops(file)):
                if opcode.name == "STACK_GLOBAL" and place < 2:
                    return True  # which takes two texts from the stack, and there are none
                if opcode.name in ACTS:
                    return False
        except Exception:  # as a loader would find
            return True
    return False


def check(checkpoint: Checkpoint, folder: Path) -> Iterator[Finding]:
    """Findings on every pickle at the top of the folder."""
    for name in files.pickles(checkpoint):
        try:
            seen = imports(folder / name)
        except ValueError as error:
            yield found("unreadable_pickle", name, f"could not be scanned: {error}")
            continue
        bad = sorted(text for text, safety in seen.items() if safety == DANGEROUS)
        others = sorted(text for text, safety in seen.items() if safety != DANGEROUS)
        if bad:
            what = f"imports {some(bad)}" + (f"; beside {some(others)}" if others else "")
            yield found("dangerous_pickle", name, what)


def named(checkpoint: Checkpoint, folder: Path) -> str:
    """For a message: what the checkpoint's pickles import."""
    seen: set[str] = set()
    for name in files.pickles(checkpoint):
        try:
            seen |= imports(folder / name).keys()
        except ValueError:
            continue
    return some(sorted(seen)) or "nothing"
