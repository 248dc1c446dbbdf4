"""Pairs the weights of a graph with the checkpoint's, by the names that exporters keep, else by content. No formats.

A weight's hints are its own name and those of the operations that read it, which exporters name by the path of the
module (`/model/layers.0/self_attn/q_proj/MatMul`). A weight whose hints name nothing is looked for among the source's
tensors that are left, by its numbers: such a pair says that the weight is there, not that it is in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hallmark import rescaled
from hallmark.census import Census, Pair, Stored, limits_of
from hallmark.source_settings import is_tied
from hallmark.source_weights import SourceTensor
from hallmark.weight_error import Read, compare

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What exporters and quantisers add to the names of tensors and modules, and what to read instead.
REWRITTEN = (
    (re.compile(r"_quantized$|_Q\d+(G\d+)?$"), ""),
    (re.compile(r"^(self|_orig_mod)\."), ""),
    (re.compile(r"\._openvino_orig_(weight|bias)$"), r".\1"),
    (re.compile(r"\.MatMul\.(weight|bias)"), r".\1"),
    (re.compile(r"\.attn\.(?=[qkvo]_|qkv_)"), ".self_attn."),
    (re.compile(r"\.(q|k)_norm\.layernorm\."), r".\1_norm."),
    (re.compile(r"layers\.\d+\.final_norm_layernorm\."), "norm."),
)
OPERATION = re.compile(r"(?:\.[A-Z]\w*)+$")  # ends a path: .MatMul, .MatMul_Q4, .Add_1
PREFIX = re.compile(r"^(model|bert|roberta|distilbert|transformer|base_model)\.")
# Modules that exporters join, one below the other.
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
# Tensors that no answer depends on: an encoder's pooler and heads, and what follows from the configuration.
UNUSED = re.compile(r"pooler\.dense\.|^cls\.|inv_freq$|position_ids$|masked_bias$|\.attn\.bias$")
SHIFTED = re.compile(r"norm\.weight$")  # see _adds_one
FACTOR_OR_BIAS = re.compile(r"(?i:norm)\.weight$|\bln_\w+\.weight$|\.bias$")  # see _is_neutral
SAMPLE = 1 << 16  # elements that a search by content compares first


@dataclass(frozen=True)
class Found:
    """A weight, the names it may go by, and whether an operation on learned weights reads it."""

    stored: Stored
    hints: tuple[str, ...]
    learned: bool = True


def pair(
    found: Sequence[Found], tensors: Mapping[str, SourceTensor], config: Mapping[str, Any], scaled: bool = False
) -> Census:
    """The census of a graph's weights. `tensors` are the checkpoint's floating-point ones, `config` its config.json.

    `scaled`: the quantiser may have moved factors from one matrix to the next (see `rescaled`).
    """
    names = _names(tensors)
    census, left = Census(), list[Found]()
    pairs: list[tuple[Stored, list[str]]] = []
    for weight in found:
        parts = _parts(weight, names, tensors)
        if parts and not (weight.stored.shape[0] == 1 and tensors[parts[0]].matrix[0] > 1):
            pairs.append((weight.stored, parts))
        else:
            left.append(weight)
    factors = {
        parts[0]: rescaled.factors(stored, tensors[parts[0]])
        for stored, parts in pairs
        if scaled and parts[0].endswith(rescaled.FIRST) and stored.shape == tensors[parts[0]].matrix
    }
    for stored, parts in pairs:
        made = _pair(stored, [tensors[name] for name in parts], config)
        by = factors.get(rescaled.partner(parts[0]))
        if by is not None:
            made = replace(made, layouts=[rescaled.layout(parts[0], made.layouts[0], by)])
        census.add(made)
    used = {name for _, parts in pairs for name in parts}
    if is_tied(config):
        used |= {name for name in tensors if name.startswith("lm_head.")}
    absent = {name: t for name, t in tensors.items() if name not in used and not UNUSED.search(name)}
    left = _by_content(census, left, absent, [tensors[name] for name in sorted(used)])
    _tell_rest(census, left, {name: t for name, t in absent.items() if not _is_neutral(t, _adds_one(config))})
    return census


def _names(tensors: Mapping[str, SourceTensor]) -> dict[str, str]:
    """Source tensors by the names that a graph may have for them: in full, and without the outermost module's."""
    short = {PREFIX.sub("", name): name for name in tensors}
    return {**short, **{name: name for name in tensors}}


def _parts(weight: Found, names: Mapping[str, str], tensors: Mapping[str, SourceTensor]) -> list[str]:
    """The source's tensors that a weight's hints name; [] when they name none that is there."""
    for hint in weight.hints:
        for name in _readings(hint, weight.stored):
            for plain in (name, PREFIX.sub("", name)):
                if plain in names:
                    return [names[plain]]
                for joined, apart in FUSED.items():
                    parts = [names.get(plain.replace(f".{joined}.", f".{one}.")) for one in apart]
                    if f".{joined}." in plain and all(parts):
                        return [part for part in parts if part]
    if any("lm_head" in hint for hint in weight.hints) and weight.learned:  # tied, and stored as the head
        return [name for name in tensors if name.endswith(("embed_tokens.weight", "wte.weight"))][:1]
    return []


def _readings(hint: str, stored: Stored) -> Iterator[str]:
    """What a hint may mean: the name of a tensor, or the path of the module that it belongs to."""
    name = hint
    for pattern, instead in REWRITTEN:
        name = pattern.sub(instead, name)
    yield name
    path = hint.replace("/", ".").strip(".").removeprefix("self.")
    operation = OPERATION.search(path)
    if operation:
        is_bias = stored.shape[0] == 1 and ".Add" in operation[0]
        name = OPERATION.sub("", path) + (".bias" if is_bias else ".weight")
        for pattern, instead in REWRITTEN:
            name = pattern.sub(instead, name)
        yield name


def _pair(stored: Stored, parts: Sequence[SourceTensor], config: Mapping[str, Any]) -> Pair:
    rows = sum(part.matrix[0] for part in parts)
    read = joined(parts)
    layouts = [read]
    if _adds_one(config) and SHIFTED.search(parts[0].name):
        layouts.append(lambda which: read(which) + 1)
    return Pair(stored, ", ".join(part.name for part in parts), (rows, parts[0].matrix[1]), layouts)


def joined(parts: Sequence[SourceTensor]) -> Read:
    """The rows of several tensors, one below the other."""
    import numpy as np

    starts = np.cumsum([0, *(part.matrix[0] for part in parts)])

    def read(which: slice) -> NDArray[np.float32]:
        pieces = []
        for part, start in zip(parts, starts, strict=False):
            first, last = max(0, which.start - int(start)), min(part.matrix[0], which.stop - int(start))
            if first < last:
                pieces.append(part.rows(slice(first, last)))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    return read


def _by_content(
    census: Census, left: Sequence[Found], absent: dict[str, SourceTensor], carried: list[SourceTensor]
) -> list[Found]:
    """Look for the rest of the source among that of the graph: takes what it finds from `absent`, returns the others.

    Exporters store equal tensors once (norms that are all ones), so one that equals a `carried` one is there too.
    """
    others = []
    for weight in left:
        name = next((name for name, tensor in absent.items() if _is_alike(weight.stored, tensor)), None)
        if name is None:
            others.append(weight)
            continue
        census.matched.append(f"{weight.stored.name}: {name}")
        carried.append(absent.pop(name))
        census.add(_pair(weight.stored, [carried[-1]], {}))
    for name, tensor in list(absent.items()):
        twin = next((other.name for other in carried if _is_equal(tensor, other)), None)
        if twin is not None:
            census.matched.append(f"{twin}: {name}, which is equal to it")
            del absent[name]
    return others


def _tell_rest(census: Census, left: Sequence[Found], absent: Mapping[str, SourceTensor]) -> None:
    """Say of what has no counterpart whether it is missing, surplus or not known."""
    learned = [weight for weight in left if weight.learned]
    sizes = {weight.stored.shape[0] * weight.stored.shape[1] for weight in learned}
    for name, tensor in absent.items():
        # One of another shape or order may be it: that cannot be told apart, and is not called wrong.
        (census.unknown if tensor.elements in sizes else census.missing).append(name)
    wanted = {tensor.elements for tensor in absent.values()}
    for weight in learned:
        size = weight.stored.shape[0] * weight.stored.shape[1]
        census.elements += size
        (census.unknown if size in wanted else census.surplus).append(weight.stored.name)


def _adds_one(config: Mapping[str, Any]) -> bool:
    """Whether the architecture's norms multiply by one more than their weight, which exports may store added."""
    return str(config.get("model_type", "")).startswith("gemma")


def _is_neutral(tensor: SourceTensor, adds_one: bool) -> bool:
    """Whether leaving it out changes nothing, as graph optimisers do: a factor of one, a bias of zero."""
    if tensor.matrix[0] > 1 or not FACTOR_OR_BIAS.search(tensor.name):
        return False
    neutral = 0 if adds_one or tensor.name.endswith(".bias") else 1
    return bool((tensor.rows(slice(0, 1)) == neutral).all())


def _is_equal(one: SourceTensor, other: SourceTensor) -> bool:
    import numpy as np

    if one.matrix != other.matrix:
        return False
    step = max(1, SAMPLE // max(1, one.matrix[1]))
    places = (slice(start, start + step) for start in range(0, one.matrix[0], step))
    return all(np.array_equal(one.rows(place), other.rows(place)) for place in places)


def _is_alike(stored: Stored, tensor: SourceTensor) -> bool:
    """Whether the first rows of both are the same to within what the type explains."""
    if stored.shape != tensor.matrix:
        return False
    rows = max(1, min(stored.shape[0], SAMPLE // max(1, stored.shape[1])))
    first = (rows, stored.shape[1])
    return not compare(tensor.rows, stored.read, first, stored.grid).exceeds(limits_of(stored.grid))
