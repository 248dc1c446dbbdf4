"""The registry of formats: a folder of adapters, and what an adapter must offer. Holds no list of formats.

An adapter is one module of this package with

    SPEC                                what the plan needs to know, as data
    convert(inputs, out, options)       writes SPEC.files into the folder `out`; returns what it did, as JSON
    inspect(files) -> Inspection        structural facts, without inference; runs in the core
    open(files, task, options)          context manager -> Runner (see `hallmark.tasks`)
    usage(task, options) -> Usage       how a person runs the files; goes into the bundle

`convert` and `open` run in the variant's toolchain, everything else in the core. The plan imports every adapter just
to read SPEC, so heavy imports (torch, onnxruntime, ...) belong inside functions; a contract test holds adapters to it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Variant:
    """A recipe of a format. `options` is plain JSON and is part of the artifact's key.

    `needs` names variants of the same format whose folders `convert` receives as `inputs[name]`; `inputs["source"]` is
    the checkpoint. `calibrated` adds `inputs["calibration"]`, a folder with the calibration data. An `intermediate`
    variant only serves others: it is never inspected, measured or released. `files` are the ones it leaves where they
    are not the format's.
    """

    options: Mapping[str, Any]
    tasks: tuple[str, ...] = ()
    toolchain: str = ""
    needs: tuple[str, ...] = ()
    calibrated: bool = False
    intermediate: bool = False
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Peak memory of a conversion: `base` bytes, and so many a byte of the checkpoint and an element of its largest."""

    base: int
    per_weight_byte: float
    per_largest: float = 0.0


@dataclass(frozen=True)
class Spec:
    """What the plan knows of a format. `files` are the ones `convert` must leave, per task where they differ.

    `architectures` maps a task to the `architectures` names of config.json that the format can carry; an empty set
    means every architecture that transformers can load for that task.
    """

    name: str
    title: str
    toolchain: str
    variants: Mapping[str, Variant]
    files: Mapping[str, tuple[str, ...]]
    architectures: Mapping[str, frozenset[str]]
    memory: Memory
    code: tuple[str, ...] = ()  # further hallmark modules that decide the bytes of an artifact
    runtime: tuple[str, ...] = ()  # hallmark modules that run one, beside the adapter: they decide what is measured

    def variant(self, name: str) -> Variant:
        return self.variants[name]

    def toolchain_of(self, variant: Variant) -> str:
        return variant.toolchain or self.toolchain

    def files_of(self, variant: Variant, task: str) -> tuple[str, ...]:
        return variant.files or self.files[task]

    def tasks_of(self, variant: Variant) -> tuple[str, ...]:
        return variant.tasks or tuple(self.architectures)


@dataclass(frozen=True)
class Inspection:
    """Structural facts of an artifact. `metrics` can be gated (numbers only); `facts` are for people and the report."""

    metrics: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """How to run an artifact: files to add to its bundle (name -> text), packages to install, and the command to type.

    `command` may hold `{folder}`, the bundle's folder. It prints an answer and exits 0.
    """

    command: str
    requirements: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@cache
def names() -> tuple[str, ...]:
    """Every format there is, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str) -> ModuleType:
    """The adapter of a format. Raises KeyError, naming what there is, when there is none of that name."""
    if name not in names():
        raise KeyError(f"no format {name!r}, have {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def spec(name: str) -> Spec:
    found = get(name).SPEC
    if not isinstance(found, Spec) or found.name != name:
        raise TypeError(f"{__name__}.{name}: SPEC must be a Spec named {name!r}")
    return found
