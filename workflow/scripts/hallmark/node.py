"""One thing the plan makes, and its key: the identity of its bytes before they exist. Runs nothing, reads no entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hallmark import digest, store
from hallmark.toolchains import Toolchain

KEY_LENGTH = 12


@dataclass(frozen=True, eq=False)
class Node:
    """A store entry to be.

    `recipe` is JSON and names no path; `code` are the modules that decide the bytes; `inputs` are the entries it reads,
    by role. `after` are entries that must be there first but decide no byte (lint), and `hints` is JSON that the job
    needs but that changes nothing about what its entry is (where a source lies; which limits a speed is about to be
    held to, which decide how many rounds are enough but not what they say); neither is in the key.
    """

    verb: str
    subject: tuple[str, ...]
    recipe: Mapping[str, Any]
    code: tuple[str, ...] = ()
    inputs: Mapping[str, Node] = field(default_factory=dict)
    toolchains: Mapping[str, Toolchain] = field(default_factory=dict)
    after: Mapping[str, Node] = field(default_factory=dict)
    hints: Mapping[str, Any] = field(default_factory=dict)
    link: str = ""  # readable name of the entry's files below artifacts/, if it has one
    memory_mb: int = 300
    disk_mb: int = 1
    cpus: int = 1

    @cached_property
    def components(self) -> dict[str, Any]:
        """What the key is made of. `hallmark why` compares these with the ones of the last run."""
        return {
            "recipe": dict(self.recipe),
            "code": {module: digest.of_code(module)[:16] for module in sorted(self.code)},
            "inputs": {role: node.key for role, node in sorted(self.inputs.items())},
            "toolchains": {role: toolchain.digest[:16] for role, toolchain in sorted(self.toolchains.items())},
        }

    @cached_property
    def key(self) -> str:
        return digest.of_value({"verb": self.verb, **self.components})[:KEY_LENGTH]

    @property
    def name(self) -> str:
        """`smollm2/gguf/q4_k_m`"""
        return "/".join(self.subject)

    @property
    def place(self) -> str:
        """Folder of the entry below the store."""
        return f"{self.verb}/{self.name}/{self.key}"

    def manifest(self, root: Path) -> Path:
        return root / self.place / store.MANIFEST

    def ready(self, root: Path) -> Path:
        """The file that stands for the entry in Snakemake's graph."""
        return root / self.place / store.READY

    def upstream(self) -> Iterator[Node]:
        """The nodes this one needs directly."""
        yield from self.inputs.values()
        yield from self.after.values()

    def job(self) -> dict[str, Any]:
        """What the rule's script needs, as JSON."""
        return {
            "verb": self.verb,
            "subject": list(self.subject),
            "key": self.key,
            "components": self.components,
            "recipe": dict(self.recipe),
            "hints": dict(self.hints),
            "link": self.link,
            "inputs": {role: node.place for role, node in self.inputs.items()},
            "after": {role: node.place for role, node in self.after.items()},
            "cpus": self.cpus,
            "toolchains": {role: str(toolchain.folder) for role, toolchain in self.toolchains.items()},
        }
