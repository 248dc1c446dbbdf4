"""Lint: a checkpoint's weight files against each other and against their index, by their headers. Reads no values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from hallmark.checkpoint import ADAPTER, BITS, INDEX, Checkpoint, Weights
from hallmark.lint.findings import Finding, found, some

SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")
WHOLE = "model.safetensors"
WHOLE_NUMBERS = ("U8", "I8", "U16", "I16", "U32", "I32")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
ADAPTED = re.compile(r"(^base_model\.model\.|\.lora_(A|B|embedding_A|embedding_B)\b|\.base_layer\.)")
# What wraps a model in training, in front of every name: torch.compile, DistributedDataParallel, FSDP, Lightning.
WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "_forward_module.")
# Tensors that quantisers leave beside, or instead of, a weight.
QUANTISED = re.compile(r"\.(qweight|qzeros|g_idx|weight_scale(_inv)?|weight_packed|SCB|quant_state\b.*|absmax|scales)$")


def pickles(checkpoint: Checkpoint) -> list[str]:
    """Files at the top of the folder that are pickles by their names."""
    return sorted(name for name in checkpoint.files if name.endswith(PICKLES) and "/" not in name)


def adapters(checkpoint: Checkpoint) -> Iterator[Finding]:
    if ADAPTER in checkpoint.files:
        kind = checkpoint.json(ADAPTER).get("peft_type", "adapter")
        yield found("unmerged_adapter", ADAPTER, f"an adapter ({kind}) that is not merged")
    elif names := [name for name in checkpoint.tensors if ADAPTED.search(name)]:
        yield found("unmerged_adapter", names[0], f"{len(names)} tensors of an adapter among the weights")


def quantised(checkpoint: Checkpoint) -> Iterator[Finding]:
    settings = checkpoint.text_config.get("quantization_config")
    tensors = checkpoint.tensors
    if isinstance(settings, dict) and settings:
        kind = settings.get("quant_method") or ("bitsandbytes" if "load_in_4bit" in settings else "of an unknown kind")
        yield found("quantised_source", "config.json", f"quantised weights ({kind})")
        return
    small = [
        name
        for name, tensor in tensors.items()
        if tensor.dtype.startswith(("F8", "F6", "F4")) or (name.endswith(".weight") and tensor.dtype in WHOLE_NUMBERS)
    ]
    left = [name for name in tensors if QUANTISED.search(name)]
    if small:
        yield found("quantised_source", small[0], f"{len(small)} tensors of type {tensors[small[0]].dtype}")
    elif left:
        yield found("quantised_source", left[0], f"quantised weights, by {len(left)} tensors such as this one")


def present(checkpoint: Checkpoint) -> Iterator[Finding]:
    files = checkpoint.model_files
    if files or checkpoint.index:
        index = set(checkpoint.index.values())
        lone = [name for name in files if name != WHOLE and name not in index and not SHARD.fullmatch(name)]
        if WHOLE not in files and not index and lone == list(files):
            yield found("other_name", lone[0], f"no loader looks for {some(lone)}")
        return
    names = pickles(checkpoint)
    if names:
        yield found("only_pickles", names[0], f"only pickled weights ({some(names)})")
    else:
        yield found("no_weights", WHOLE, "no weights")


def sound(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Each file by itself: header, size, and where its tensors lie."""
    for name, weights in checkpoint.weights.items():
        if weights.flaw:
            yield found("bad_header", name, weights.flaw)
            continue
        if not weights.tensors:
            yield found("no_tensors", name, "holds no tensors")
            continue
        if weights.size < weights.wanted:
            lost = sorted(
                tensor for tensor, entry in weights.tensors.items() if weights.data + entry.end > weights.size
            )
            what = f"cut off: {weights.size:,} bytes of {weights.wanted:,}; beyond its end: {some(lost)}"
            yield found("truncated", name, what)
        elif weights.size > weights.wanted:
            yield found("too_long", name, f"{weights.size - weights.wanted:,} bytes too long")
        for tensor in weights.doubled:
            yield found("doubled_tensor", tensor, f"twice in {name}")
        yield from _tensors(name, weights)
        yield from _layout(name, weights)


def _tensors(name: str, weights: Weights) -> Iterator[Finding]:
    for tensor, entry in sorted(weights.tensors.items()):
        if entry.dtype not in BITS:
            yield found("unknown_type", tensor, f"type {entry.dtype} in {name}")
        elif entry.elements * BITS[entry.dtype] != 8 * (entry.end - entry.begin):
            shape = " × ".join(map(str, entry.shape)) or "one value"
            what = f"{entry.end - entry.begin:,} bytes in {name} for {shape} of {entry.dtype}"
            yield found("wrong_length", tensor, what)
    empty = sorted(tensor for tensor, entry in weights.tensors.items() if not entry.elements)
    if empty:
        yield found("empty_tensor", empty[0], f"{len(empty)} tensors of {name} have no elements: {some(empty)}")


def _layout(name: str, weights: Weights) -> Iterator[Finding]:
    """Tensors must lie one behind the other, as the format has it, and its own reader insists."""
    placed = sorted((entry.begin, entry.end, tensor) for tensor, entry in weights.tensors.items() if entry.elements)
    for (_, end, first), (begin, _, second) in pairwise([(0, 0, ""), *placed]):
        if begin < end:
            yield found("overlap", second, f"shares {end - begin:,} bytes of {name} with {first}")
        elif begin > end and not weights.doubled:
            yield found("gap", second, f"{begin - end:,} bytes of {name} before it belong to no tensor")


def shards(checkpoint: Checkpoint) -> Iterator[Finding]:
    files, index = checkpoint.model_files, checkpoint.index
    missing = set(index.values()) - files.keys()
    named = [match for match in map(SHARD.fullmatch, files) if match]
    for match in named:
        numbers = range(1, int(match[3]) + 1)
        missing |= {f"{match[1]}-{number:0{len(match[2])}d}-of-{match[3]}.safetensors" for number in numbers}
    for name in sorted(missing - files.keys()):
        lost = sorted(tensor for tensor, file in index.items() if file == name)
        yield found("missing_shard", name, f"missing, with {len(lost)} tensors: {some(lost)}" if lost else "missing")
    if named and not index and WHOLE not in files:
        yield found("no_index", INDEX, f"missing, and the weights are in {len(named)} shards")


def indexed(checkpoint: Checkpoint) -> Iterator[Finding]:
    index = checkpoint.index
    listed: dict[str, set[str]] = defaultdict(set)
    for tensor, file in index.items():
        listed[file].add(tensor)
    for name, weights in checkpoint.model_files.items() if index else ():
        have = weights.tensors.keys()
        if weights.flaw:
            continue
        if name not in listed:
            if not have & index.keys():  # else they are two weight sets, which is said as such
                yield found("file_not_in_index", name, f"{INDEX} has none of its {len(have)} tensors")
            continue
        for tensor in sorted(listed[name] - have):
            yield found("missing_tensor", tensor, f"{INDEX} has it in {name}, the file has not")
        for tensor in sorted(have - listed[name]):
            yield found("index_lacks_tensor", tensor, f"{name} has it, {INDEX} has not")


def doubled(checkpoint: Checkpoint) -> Iterator[Finding]:
    """The same tensor in two files: which one counts is each reader's choice."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, weights in checkpoint.model_files.items():
        for tensor in weights.tensors:
            places[tensor].append(name)
    pairs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for tensor, names in places.items():
        if len(names) > 1:
            pairs[tuple(names)].append(tensor)
    for pair, tensors in sorted(pairs.items()):
        what = f"{len(tensors)} tensors are in each of them, the first is {min(tensors)}"
        yield found("two_weight_sets", " and ".join(pair), what)


def wrapped(checkpoint: Checkpoint) -> Iterator[Finding]:
    for prefix in WRAPPERS:
        if checkpoint.tensors and all(name.startswith(prefix) for name in checkpoint.tensors):
            yield found("training_prefix", min(checkpoint.tensors), f"every name begins with {prefix!r}")


CHECKS = (adapters, quantised, present, sound, shards, indexed, doubled, wrapped)
