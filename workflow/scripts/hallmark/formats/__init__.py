"""The registry of formats: a folder of adapters, and what an adapter must offer. Holds no list of formats.

An adapter is one module of this package with

    SPEC                                what the plan needs to know, as data
    convert(inputs, out, options)       writes SPEC.files into the folder `out`; returns what it did, as JSON
    inspect(files, source, task, options) -> Inspection     the files against the checkpoint, without inference
    open(files, task, options)          context manager -> Runner (see `hallmark.tasks`)
    usage(task, options) -> Usage       how a person runs the files; goes into the bundle

`convert` and `open` run in the variant's toolchain, everything else in the core. `inspect` gives every metric of
`tasks.INSPECTED` that its format can tell; the options are the variant's, which say what was asked for. The plan
imports every adapter just to read SPEC, so heavy imports (torch, onnxruntime, ...) belong inside functions; a contract
test holds adapters to it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from hallmark.lint.findings import FLOAT16, REMOTE_CODE, ROPE
from hallmark.options import Setting

# What every format's inspection works with: how weights and texts are compared with the checkpoint's.
INSPECTION = (
    "hallmark.census",
    "hallmark.sentence_modules",
    "hallmark.source_settings",
    "hallmark.source_tokens",
    "hallmark.source_weights",
    "hallmark.weight_error",
)


@dataclass(frozen=True)
class Memory:
    """Peak memory of a conversion: `base` bytes, and so many a byte of the checkpoint and an element of its largest."""

    base: int
    per_weight_byte: float
    per_largest: float = 0.0


@dataclass(frozen=True)
class Variant:
    """A recipe of a format. `options` is plain JSON and is part of the artifact's key; those that are `fixed` make the
    variant what it is, the others a user may set.

    `needs` names variants of the same format whose folders `convert` receives as `inputs[name]`; `inputs["source"]` is
    the checkpoint. `calibrated` adds `inputs["calibration"]`, a folder with the calibration data. An `intermediate`
    variant only serves others: it is never inspected, measured or released, and takes those options of the variant it
    serves which that one does not have. `files` are the ones it leaves where they are not the format's, and so are
    `memory` and `rope`, what it carries.
    """

    options: Mapping[str, Any]
    fixed: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    toolchain: str = ""
    needs: tuple[str, ...] = ()
    calibrated: bool = False
    intermediate: bool = False
    files: tuple[str, ...] = ()
    memory: Memory | None = None
    rope: Mapping[str, frozenset[str]] | None = None


@dataclass(frozen=True)
class Spec:
    """What the plan knows of a format. `files` are the ones `convert` must leave, per task where they differ;
    `settings` are the options that a user may set, in some variant.

    `architectures` maps a task to the `architectures` names of config.json that the format can carry; an empty set
    means every architecture that transformers can load for that task. `rope` maps each kind of rotary scaling that
    comes out as in the source to the architectures for which it does; an empty set means all. `float16` are the options
    of the recipes that store weights as float16. `remote_code`: the conversion needs no code of the checkpoint's own.
    """

    name: str
    title: str
    toolchain: str
    variants: Mapping[str, Variant]
    files: Mapping[str, tuple[str, ...]]
    architectures: Mapping[str, frozenset[str]]
    memory: Memory
    rope: Mapping[str, frozenset[str]]
    float16: Mapping[str, Any]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    remote_code: bool = False
    code: tuple[str, ...] = ()  # further hallmark modules that decide the bytes of an artifact
    runtime: tuple[str, ...] = ()  # hallmark modules that run one, beside the adapter: they decide what is measured
    inspection: tuple[str, ...] = ()  # hallmark modules that inspect one: they decide no byte of it

    def chain(self, variant: Variant) -> list[Variant]:
        """A variant and the intermediate ones that it is made of."""
        made = [variant]
        for need in (self.variants[name] for name in variant.needs):
            made += self.chain(need) if need.intermediate else []
        return made

    def options_of(self, variant: Variant) -> dict[str, Any]:
        """What a user may set: the variant's own options, then those of the intermediate ones that it is made of."""
        return {
            name: value
            for made in reversed(self.chain(variant))
            for name, value in made.options.items()
            if name not in made.fixed
        }

    def toolchain_of(self, variant: Variant) -> str:
        return variant.toolchain or self.toolchain

    def files_of(self, variant: Variant, task: str) -> tuple[str, ...]:
        return variant.files or self.files[task]

    def memory_of(self, variant: Variant) -> Memory:
        return variant.memory or self.memory

    def tasks_of(self, variant: Variant) -> tuple[str, ...]:
        return variant.tasks or tuple(self.architectures)

    def carries(self, trait: str, variant: Variant, options: Mapping[str, Any], architecture: str) -> bool:
        """Whether a recipe, with these options, keeps a trait that lint found in a checkpoint (`lint.findings`)."""
        if trait == FLOAT16:
            return not self.float16.items() <= options.items()
        if trait == REMOTE_CODE:
            return self.remote_code
        known = self.rope if variant.rope is None else variant.rope
        kind = trait.removeprefix(ROPE)
        return kind in known and (not known[kind] or architecture in known[kind])


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


def able(trait: str, task: str, architecture: str) -> list[str]:
    """The artifacts (`gguf/q8_0`) of a task and an architecture that keep a trait, see `Spec.carries`."""
    return [name for name, carried in _carrying(trait, task, architecture) if carried]


def unable(trait: str, task: str, architecture: str) -> list[str]:
    """The artifacts of a task and an architecture that lose a trait, see `Spec.carries`."""
    return [name for name, carried in _carrying(trait, task, architecture) if not carried]


def _carrying(trait: str, task: str, architecture: str) -> Iterator[tuple[str, bool]]:
    for name in names():
        found = spec(name)
        known = found.architectures.get(task)
        for title, variant in found.variants.items() if known is not None else ():
            if variant.intermediate or task not in found.tasks_of(variant) or (known and architecture not in known):
                continue
            yield f"{name}/{title}", found.carries(trait, variant, variant.options, architecture)
