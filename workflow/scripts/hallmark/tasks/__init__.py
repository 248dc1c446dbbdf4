"""The registry of tasks: what a model is for, and so how it is measured. Holds no numbers and runs nothing itself.

A task is one module of this package with

    NAME                                        as written in the config, e.g. "causal-lm"
    METRICS                                     name -> Metric, every number the task can be gated on
    TIMES                                       name -> title, those of `sample`'s times that the report draws
    REFERENCE_OPTIONS, SPEED_OPTIONS, OPTIONS   name -> Option, how it is measured; OPTIONS is both
    CODE                                        modules that decide the numbers of reference and accuracy
    open_reference(source, options)             context manager -> Runner on PyTorch eager (toolchain `torch`)
    reference(runner, data, out, options)       what the source answers, written into the folder `out`; returns notes
    accuracy(runner, reference, data, out, options) -> {metric: Estimate as JSON}; raw samples go into `out`
    requests(reference, options, count)         `count` different speed requests, plain JSON
    sample(runner, request) -> {name: seconds}  one timed request
    speed(artifact, source) -> {metric: ...}    from the samples of both sides (lists of dicts of seconds)

A Runner is what an adapter's `open` yields. Its methods by task:

    causal-lm            encode(text) -> list[int]                   the artifact's own tokenizer, with special tokens
                         logits(ids) -> float32 (len(ids), vocab)    fresh state, every position
                         prefill(ids) -> int                         fresh state, runs a prompt; greedy next token id
                         decode(token) -> int                        one step further; the greedy next token id
    sentence-similarity  encode(text) -> list[int]
                         embed(texts) -> float32 (len(texts), width) unit length

The modules run in toolchains too: at module level they import the standard library and hallmark only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A number that can be gated: where it comes from, its unit ('' for a ratio or a share), which way is better."""

    source: Literal["accuracy", "speed", "inspect"]
    unit: str
    better: Literal["lower", "higher"]
    meaning: str


# What every adapter's `inspect` counts, whatever the task.
INSPECTED = {
    "nonfinite": Metric("inspect", "values", "lower", "stored weights and scales that are NaN or infinite"),
    "bits_per_weight": Metric("inspect", "bits", "lower", "bits stored for each weight, scales included"),
}


@dataclass(frozen=True)
class Option:
    """One setting of how a task is measured: its default, and what it means."""

    default: int | float
    meaning: str


def defaults(options: Mapping[str, Option]) -> dict[str, int | float]:
    """Options as plain numbers."""
    return {name: option.default for name, option in options.items()}


@cache
def _modules() -> dict[str, ModuleType]:
    found = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {module.NAME: module for module in found}


def names() -> tuple[str, ...]:
    """Every task there is, in alphabetical order."""
    return tuple(sorted(_modules()))


def get(name: str) -> ModuleType:
    """The module of a task. Raises KeyError, naming what there is, when there is none of that name."""
    if name not in _modules():
        raise KeyError(f"no task {name!r}, have {', '.join(names())}")
    return _modules()[name]
