"""Read a Hugging Face checkpoint's headers, and the facts that the plan computes with. Loads no tensor and no pickle.

Never fails on what is in the files: a file that cannot be read says so (`Weights.flaw`, `Checkpoint.unreadable`). What
is wrong with a checkpoint is for `hallmark.lint`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

Open = Callable[[], BinaryIO]
# Bits of an element by the names of the safetensors format, version 0.8.
BITS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8, "U8": 8,
    "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"}
ROPE_NAMES = {"su": "longrope", "mrope": "default"}  # older names of the same
LONGEST_HEADER = 100_000_000  # the limit of the safetensors format
CONFIG, INDEX, ADAPTER = "config.json", "model.safetensors.index.json", "adapter_config.json"
LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file's header has it: type (`F32`), shape, and where its bytes lie in the file's data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Weights:
    """One safetensors file: its tensors, size in bytes, where its data begins, and names that its header has twice.

    `flaw` says why it has none of these: it is no such file.
    """

    tensors: Mapping[str, Tensor]
    size: int = 0
    data: int = 0
    doubled: tuple[str, ...] = ()
    flaw: str = ""

    @property
    def wanted(self) -> int:
        """Bytes that the header wants the file to have."""
        return self.data + max((tensor.end for tensor in self.tensors.values()), default=0)


class Checkpoint:
    """The files of a checkpoint (path -> a function that opens it), with the headers of its safetensors files.

    JSON files are read when they are asked for.
    """

    def __init__(self, files: Mapping[str, Open]) -> None:
        self.files = files
        self.weights = {name: _weights(files[name]) for name in sorted(files) if name.endswith(".safetensors")}
        self.unreadable: dict[str, str] = {}
        self._read: dict[str, Any] = {}

    def document(self, name: str) -> Any:
        """The content of a JSON file; None when it is missing, or not JSON as transformers reads it."""
        if name not in self._read:
            self._read[name] = None
            if name in self.files:
                try:
                    self._read[name] = json.loads(self.bytes(name).decode("utf-8"))
                except ValueError as error:  # a byte order mark, too
                    self.unreadable[name] = str(error)
        return self._read[name]

    def json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file that holds an object; {} when it is missing or anything else."""
        content = self.document(name)
        if content is not None and not isinstance(content, dict):
            self.unreadable[name] = f"it holds a {type(content).__name__}, not an object"
        return content if isinstance(content, dict) else {}

    def bytes(self, name: str) -> bytes:
        """A small file's content."""
        with self.files[name]() as stream:
            return stream.read()

    @property
    def config(self) -> dict[str, Any]:
        return self.json(CONFIG)

    @property
    def text_config(self) -> dict[str, Any]:
        """The config of the language part, with what the whole says where the part says nothing."""
        part = self.config.get("text_config")
        return {**self.config, **part} if isinstance(part, dict) else self.config

    @property
    def index(self) -> dict[str, str]:
        """Tensor -> file, as the index of a sharded checkpoint has it; {} without one."""
        mapping = self.json(INDEX).get("weight_map", {})
        return mapping if isinstance(mapping, dict) else {}

    @property
    def model_files(self) -> dict[str, Weights]:
        """The files that hold the model itself: no adapters, no modules in folders, no vendor's second copy."""
        top = {name: weights for name, weights in self.weights.items() if "/" not in name}
        own = {name: weights for name, weights in top.items() if not name.startswith(("adapter", "consolidated"))}
        return own or {name: weights for name, weights in top.items() if name.startswith("consolidated")}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the model's files by name; of two by one name, one."""
        return {name: tensor for weights in self.model_files.values() for name, tensor in weights.tensors.items()}

    @property
    def rope_types(self) -> tuple[str, ...]:
        """The kinds of rotary scaling in the config besides the plain one, by transformers' present names, sorted.

        `rope_scaling` is the older key of the two, and counts for transformers 5 where both are there.
        """
        found = set()
        for key in ("rope_scaling", "rope_parameters"):
            for part in _rope_parts(self.text_config.get(key)):
                name = str(part.get("rope_type") or part.get("type") or "default")
                found.add(ROPE_NAMES.get(name, name))
        return tuple(sorted(found - {"default", "none"}))


def _rope_parts(settings: Any) -> Iterator[Mapping[str, Any]]:
    """The one set of rotary settings, or one for each kind of layer."""
    if isinstance(settings, dict):
        parts = [part for part in settings.values() if isinstance(part, dict)]
        yield from parts if parts and "rope_type" not in settings and "type" not in settings else [settings]


def read(files: Mapping[str, Open]) -> Checkpoint:
    """Read the headers of a checkpoint's files."""
    return Checkpoint(files)


def of_folder(folder: Path) -> Checkpoint:
    """Read the headers of a checkpoint in a folder."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return read({name: partial(_open, path) for name, path in files.items() if not f"/{name}".count("/.")})


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


class _Header(dict[str, Any]):
    """A JSON object that knows which of its names came twice."""

    doubled: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> _Header:
    made = _Header(pairs)
    names = [name for name, _ in pairs]
    made.doubled = tuple(sorted(name for name in made if names.count(name) > 1)) if len(made) < len(names) else ()
    return made


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
        header = json.loads(raw if len(raw) == length else b"", object_pairs_hook=_pairs)
        tensors = {name: _tensor(entry) for name, entry in header.items() if name != "__metadata__"}
        return Weights(tensors, size, 8 + length, header.doubled)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Weights({}, flaw="its header is not that of a safetensors file, or is cut off")


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError("a size or an offset is no whole number")
    return Tensor(str(entry["dtype"]), shape, begin, end)


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
    what the config does not say is None. `rope`, a list, is there only where a rotary scaling is.
    """
    config = checkpoint.text_config
    tensors = [tensor for weights in checkpoint.weights.values() for tensor in weights.tensors.values()]
    types: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        types[tensor.dtype] += tensor.elements
    common = max(types, key=lambda name: types[name], default="")
    rope = {"rope": list(checkpoint.rope_types)} if checkpoint.rope_types else {}
    return {
        "architecture": next(iter(checkpoint.config.get("architectures") or ()), None),
        "model_type": checkpoint.config.get("model_type"),
        "parameters": sum(tensor.elements for tensor in tensors),
        "vocab_size": config.get("vocab_size"),
        "hidden": config.get("hidden_size"),
        "layers": config.get("num_hidden_layers"),
        "weight_bytes": sum(tensor.elements * BITS.get(tensor.dtype, 8) // 8 for tensor in tensors),
        "largest": max((tensor.elements for tensor in tensors), default=0),
        "dtype": NAMES.get(common, common.lower()) or None,
        **rope,
    }
