"""The registry of tasks: what a model is for, and so how it is measured. Holds no numbers and runs nothing itself.

A task is one module of this package with

    NAME                                        as written in the config, e.g. "causal-lm"
    METRICS                                     name -> Metric, every number the task can be gated on
    TIMES                                       name -> title, those of `sample`'s times that the report draws
    REFERENCE_OPTIONS, SPEED_OPTIONS, OPTIONS   name -> Option, how it is measured; OPTIONS is both
    MORE                                        whether the option `more` (a factor) brings the reference more samples
    CODE                                        modules that decide the numbers of reference and accuracy
    open_reference(source, options)             context manager -> Runner on PyTorch eager (toolchain `torch`)
    reference(runner, data, out, options)       what the source answers, written into the folder `out`; returns notes
    accuracy(runner, reference, data, out, options) -> {metric: Estimate as JSON}; raw samples go into `out`
    requests(reference, options, count)         `count` different speed requests, plain JSON
    sample(runner, request) -> {name: seconds}  one timed request
    speed(artifact, source, error) -> {metric: ...}   from the samples of both sides (lists of dicts of seconds); the
                                                intervals may miss with the chance `error`

and, where MLPerf LoadGen may drive it (`hallmark.loadgen`), also

    together(requests)                          one request out of several, which `sample` answers as one batch

with the metrics of `hallmark.loadgen_results` among its METRICS. Its ratios to the source are measured against the last
release too, where a policy asks for it: `metrics` adds those.

A Runner is what an adapter's `open` yields. Its methods by task:

    causal-lm            encode(text, special=True) -> list[int]     the artifact's own tokenizer; special: BOS and such
                         chat() -> (template, {name: text})          its own chat template, its special tokens
                         logits(ids) -> float32 (len(ids), vocab)    fresh state, every position
                         prefill(ids) -> int                         fresh state, runs a prompt; greedy next token id
                         decode(token) -> int                        one step further; the greedy next token id
                         scores() -> float32 (vocab,)                the logits that the last of these two chose from
                         stops                                       token ids at which the artifact ends an answer
    sentence-similarity  encode(text, special=True) -> list[int]
                         embed(texts) -> float32 (len(texts), width) unit length, each text by itself
                         embed_together(texts) -> the same           in one padded batch

The source's have more: `chat_prompt` and `positions` for language models, `longest` for encoders (see `pytorch`).

A runner whose runtime always adds special tokens has `encodes_bare = False`, one that cuts texts to so many tokens has
`cuts_at`. The source's also has `spans(text)` and `special()`, see `hallmark.pytorch.Source`.

The modules run in toolchains too: at module level they import the standard library and hallmark only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A number that can be gated: where it comes from, its unit ('' for a ratio or a share), which way is better.

    `timed` are those that others at work on the machine change: taken from a clock, from the CPU time of a process, or
    a difference of two times, which they may make smaller as well as larger.
    `grows`: more of what it is taken over gives it a narrower interval: text, or timed rounds.
    """

    source: Literal["accuracy", "choices", "speed", "loadgen", "release", "inspect"]
    unit: str
    better: Literal["lower", "higher"]
    meaning: str
    timed: Literal["", "clock", "cpu", "difference"] = ""
    grows: bool = True


def timed(
    unit: str,
    better: Literal["lower", "higher"],
    meaning: str,
    by: Literal["clock", "cpu", "difference"] = "clock",
    grows: bool = True,
) -> Metric:
    """A metric of the speed measurement that others at work on the machine change."""
    return Metric("speed", unit, better, meaning, by, grows)


def _inspected(unit: str, meaning: str, better: Literal["lower", "higher"] = "lower") -> Metric:
    return Metric("inspect", unit, better, meaning)


# What adapters' `inspect` counts, whatever the task; the last four where the format has such a thing.
INSPECTED = {
    "nonfinite": _inspected("values", "stored weights and scales that are NaN or infinite"),
    "bits_per_weight": _inspected("bits", "bits stored for each weight, scales included"),
    "missing_tensors": _inspected("tensors", "source's weights without a counterpart; tied and unused ones may lack"),
    "surplus_tensors": _inspected("tensors", "weights that stand for none of the source's"),
    "shape_mismatches": _inspected("tensors", "weights of another shape than the source's"),
    "weight_mismatches": _inspected("tensors", "weights further from the source's than their type explains"),
    "uncompared_share": _inspected("", "share of the weights that could not be compared with the source's"),
    "other_type_share": _inspected("", "share of the matrices' weights in another type than was asked for"),
    "vocabulary_mismatch": _inspected("tokens", "tokens with another text than the source's, missing or added"),
    "special_token_mismatch": _inspected("differences", "special ids and flags unlike the source's, lost stop tokens"),
    "chat_template_mismatch": _inspected("templates", "1 where the chat template is not the source's text"),
    "rope_mismatch": _inspected("settings", "rotary settings unlike the source's, or left out"),
    "config_mismatch": _inspected("settings", "sizes, context length or norm epsilon unlike the source's"),
    "baked_axes": _inspected("axes", "batch or sequence dimensions that have the size of the export"),
    "external_data_mismatch": _inspected("files", "data files that the graph lacks or does not use"),
    "opset": _inspected("", "version of the ONNX operator set", "higher"),
    "stateful": _inspected("", "1 where the key-value cache is inside an OpenVINO model", "higher"),
}


RELEASE = "release_"  # begins the names of the ratios to the last release
RELEASE_SIZE = Metric("release", "", "higher", "size of the last release's files over the artifact's")


@dataclass(frozen=True)
class Option:
    """One setting of how a task is measured: its default, what it means, and the least that makes sense."""

    default: int | float
    meaning: str
    least: int = 0


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


def metrics(name: str) -> dict[str, Metric]:
    """Every number that a task's artifacts can be gated on: its own, and those against the last release."""
    own: dict[str, Metric] = get(name).METRICS
    ratios = {
        f"{RELEASE}{metric}": replace(known, source="release", meaning=known.meaning.replace("source", "last release"))
        for metric, known in own.items()
        if known.source == "speed" and known.unit == ""
    }
    return {**own, **ratios, f"{RELEASE}size_ratio": RELEASE_SIZE}
