"""Read a Hugging Face checkpoint's headers and say what is wrong with it. Loads no tensor, opens no pickle.

A check is a function from a Checkpoint to its findings; CHECKS lists them. Facts are what the plan needs to know before
anything is converted: architecture, parameters, sizes.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

Open = Callable[[], BinaryIO]
BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"}
LONGEST_HEADER = 100_000_000  # the limit of the safetensors format
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "tekken.json",
)
SHARD = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")
INDEX, ADAPTER = "model.safetensors.index.json", "adapter_config.json"
LFS = b"version https://git-lfs"


class LintError(Exception):
    """A checkpoint must not be converted. The text has a line for each reason."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file's header has it: type (`F32`), shape, and where its bytes end in the file's data."""

    dtype: str
    shape: tuple[int, ...]
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Weights:
    """One safetensors file: its tensors, its size in bytes and the size its header wants; or what is wrong with it."""

    tensors: Mapping[str, Tensor]
    size: int = 0
    wanted: int = 0
    flaw: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """What the headers say. `names` are all files; `config` and `index` are {} when missing or not JSON."""

    names: frozenset[str]
    config: Mapping[str, Any]
    weights: Mapping[str, Weights]
    index: Mapping[str, str]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: how bad, a word for programs, the file or tensor, what is wrong, what to do."""

    level: Literal["error", "warning"]
    code: str
    place: str
    message: str
    remedy: str


def read(files: Mapping[str, Open]) -> Checkpoint:
    """Read the headers of a checkpoint's files (path -> a function that opens it). Never fails on what is in them."""
    config, index = _json(files, "config.json"), _json(files, INDEX)
    mapping = index.get("weight_map", {})
    weights = {name: _weights(files[name]) for name in sorted(files) if name.endswith(".safetensors")}
    return Checkpoint(frozenset(files), config, weights, mapping if isinstance(mapping, dict) else {})


def of_folder(folder: Path) -> Checkpoint:
    """Read the headers of a checkpoint in a folder."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return read({name: partial(_open, path) for name, path in files.items()})


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


def _json(files: Mapping[str, Open], name: str) -> dict[str, Any]:
    if name not in files:
        return {}
    try:
        with files[name]() as stream:
            content = json.load(stream)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _weights(opened: Open) -> Weights:
    """Read a safetensors header: eight bytes of length, JSON, then data; see the format's README."""
    with opened() as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > LONGEST_HEADER:
            return Weights({}, flaw=_not_safetensors(first + stream.read(len(LFS))))
        raw = stream.read(length)
        size = _size(stream, 8 + len(raw))
    try:
        header = json.loads(raw)
        tensors = {
            name: Tensor(entry["dtype"], tuple(entry["shape"]), entry["data_offsets"][1])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return Weights({}, flaw="its header is not that of a safetensors file, or is cut off")
    return Weights(tensors, size, 8 + length + max((tensor.end for tensor in tensors.values()), default=0))


def _not_safetensors(start: bytes) -> str:
    if start.startswith(LFS):
        return "it is a Git LFS pointer, not the file; fetch it with: git lfs pull"
    return "it is no safetensors file"


def _size(stream: BinaryIO, position: int) -> int:
    """Bytes of a stream of which `position` bytes were read."""
    if stream.seekable():
        return stream.seek(0, 2)
    while chunk := stream.read(1 << 22):
        position += len(chunk)
    return position


def facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the plan computes with. Sizes are in bytes, `largest` is the elements of the largest tensor.

    {"architecture", "model_type", "parameters", "vocab_size", "hidden", "layers", "weight_bytes", "largest", "dtype"};
    what the config does not say is None.
    """
    config = {**checkpoint.config.get("text_config", {}), **checkpoint.config}
    tensors = [tensor for weights in checkpoint.weights.values() for tensor in weights.tensors.values()]
    types: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        types[tensor.dtype] += tensor.elements
    common = max(types, key=lambda name: types[name], default="")
    return {
        "architecture": next(iter(config.get("architectures") or ()), None),
        "model_type": config.get("model_type"),
        "parameters": sum(tensor.elements for tensor in tensors),
        "vocab_size": config.get("vocab_size"),
        "hidden": config.get("hidden_size"),
        "layers": config.get("num_hidden_layers"),
        "weight_bytes": sum(tensor.elements * BITS.get(tensor.dtype, 8) // 8 for tensor in tensors),
        "largest": max((tensor.elements for tensor in tensors), default=0),
        "dtype": NAMES.get(common, common.lower()) or None,
    }


def _config(checkpoint: Checkpoint) -> Iterator[Finding]:
    if "config.json" not in checkpoint.names:
        yield Finding("error", "no_config", "config.json", "missing", "a checkpoint in Hugging Face's form is needed")
    elif not checkpoint.config.get("architectures"):
        yield Finding("error", "no_architecture", "config.json", "names no architecture", "add `architectures` to it")


def _tokenizer(checkpoint: Checkpoint) -> Iterator[Finding]:
    pair = {"vocab.json", "merges.txt"} <= checkpoint.names
    if not pair and not any(name in checkpoint.names for name in TOKENIZERS):
        remedy = f"add one of {', '.join(TOKENIZERS)}, or vocab.json with merges.txt"
        yield Finding(
            "error", "no_tokenizer", "tokenizer.json", "missing, and so is every other tokenizer file", remedy
        )


def _adapter(checkpoint: Checkpoint) -> Iterator[Finding]:
    if ADAPTER in checkpoint.names:
        yield Finding(
            "error", "unmerged_adapter", ADAPTER, "an adapter that is not merged", "merge it into the weights first"
        )


def _present(checkpoint: Checkpoint) -> Iterator[Finding]:
    if checkpoint.weights or checkpoint.index:
        return
    pickles = sorted(name for name in checkpoint.names if name.endswith((".bin", ".pt", ".pth")))
    what = f"only pickled weights ({pickles[0]})" if pickles else "no weights"
    yield Finding("error", "no_weights", "model.safetensors", what, "save the model with safetensors")


def _sound(checkpoint: Checkpoint) -> Iterator[Finding]:
    remedy = "bring the file again"
    for name, weights in checkpoint.weights.items():
        if weights.flaw:
            yield Finding("error", "bad_header", name, weights.flaw, remedy)
        elif weights.size < weights.wanted:
            what = f"cut off: {weights.size:,} bytes of {weights.wanted:,}"
            yield Finding("error", "truncated", name, what, remedy)
        elif weights.size > weights.wanted:
            what = f"{weights.size - weights.wanted:,} bytes too long"
            yield Finding("error", "too_long", name, what, remedy)
        elif not weights.tensors:
            yield Finding("error", "no_tensors", name, "holds no tensors", remedy)


def _shards(checkpoint: Checkpoint) -> Iterator[Finding]:
    missing = set(checkpoint.index.values()) - checkpoint.weights.keys()
    for match in filter(None, map(SHARD.fullmatch, checkpoint.weights)):
        numbers = range(1, int(match[3]) + 1)
        missing |= {f"{match[1]}-{number:0{len(match[2])}d}-of-{match[3]}.safetensors" for number in numbers}
    for name in sorted(missing - checkpoint.weights.keys()):
        lost = sum(file == name for file in checkpoint.index.values())
        what = f"missing, with {lost} tensors" if lost else "missing"
        yield Finding("error", "missing_shard", name, what, "bring the file too")


def _index(checkpoint: Checkpoint) -> Iterator[Finding]:
    if not checkpoint.index:
        return
    for name in sorted(set(checkpoint.index.values()) & checkpoint.weights.keys()):
        listed = {tensor for tensor, file in checkpoint.index.items() if file == name}
        have = checkpoint.weights[name].tensors.keys()
        if checkpoint.weights[name].flaw:
            continue
        for tensor in sorted(listed - have):
            yield Finding(
                "error", "missing_tensor", tensor, f"{INDEX} has it in {name}, the file has not", "bring both again"
            )
        for tensor in sorted(have - listed):
            yield Finding("error", "index_lacks_tensor", tensor, f"{name} has it, {INDEX} has not", "bring both again")


def _doubled(checkpoint: Checkpoint) -> Iterator[Finding]:
    """The same tensor in two files: which one counts is each reader's choice."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, weights in checkpoint.weights.items():
        for tensor in weights.tensors if "/" not in name else ():
            places[tensor].append(name)
    pairs: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for tensor, names in places.items():
        if len(names) > 1:
            pairs[tuple(names)].append(tensor)
    for pair, tensors in sorted(pairs.items()):
        what = f"{len(tensors)} tensors are in each of them, the first is {min(tensors)}"
        yield Finding("error", "two_weight_sets", " and ".join(pair), what, "remove the set that is not wanted")


CHECKS = (_config, _tokenizer, _adapter, _present, _sound, _shards, _index, _doubled)


def findings(checkpoint: Checkpoint) -> list[Finding]:
    """Everything that is wrong, in the order of CHECKS."""
    return [finding for check in CHECKS for finding in check(checkpoint)]


def problems(folder: Path) -> list[str]:
    """A line for each error in a folder's checkpoint."""
    return [_line(asdict(finding)) for finding in findings(of_folder(folder)) if finding.level == "error"]


def lint_report(folder: Path) -> dict[str, Any]:
    """{"findings": [{"level", "code", "place", "message", "remedy"}], "facts": {...}} of a folder's checkpoint."""
    checkpoint = of_folder(folder)
    return {"findings": [asdict(finding) for finding in findings(checkpoint)], "facts": facts(checkpoint)}


def refuse(subject: str, report: Mapping[str, Any]) -> None:
    """Raise LintError when a lint report has errors."""
    errors = [finding for finding in report["findings"] if finding["level"] == "error"]
    if errors:
        raise LintError("\n".join(f"{subject}: {_line(finding)}" for finding in errors))


def _line(finding: Mapping[str, Any]) -> str:
    return f"{finding['place']}: {finding['message']}; {finding['remedy']} [{finding['code']}]"
