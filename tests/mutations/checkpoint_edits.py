"""Edits a copy of a checkpoint folder: its JSON files and its safetensors file. Knows no defect.

A copy is made of links, so that 500 MB are not copied to change a word of config.json. Whatever is written is written
as a new file in the link's place, never through it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.cases.checkpoints import header, safetensors

from hallmark import checkpoint
from hallmark.lint.tokens import EMBEDDING

WEIGHTS = "model.safetensors"
NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}  # bfloat16, which numpy has not, is the upper half of float32
Tensors = dict[str, tuple[str, tuple[int, ...], Any]]  # name -> type, shape, bytes
Entries = dict[str, dict[str, Any]]


def linked(folder: Path, copy: Path) -> Path:
    """A folder of symbolic links to every file below `folder`."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            place = copy / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path.resolve())
    return copy


def replace(path: Path, data: bytes) -> None:
    """Write a new file in the place of whatever is there."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is no file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the object in a JSON file; an empty one where there is no file."""
    content = read_json(path)
    change(content)
    replace(path, json.dumps(content).encode())


def load(folder: Path) -> Tensors:
    """The tensors of the one file of weights, their bytes mapped and not read."""
    weights = checkpoint.of_folder(folder).weights[WEIGHTS]
    data = np.memmap(folder / WEIGHTS, np.uint8, "r", offset=weights.data)
    return {name: (tensor.dtype, tensor.shape, data[tensor.begin : tensor.end].data)
            for name, tensor in weights.tensors.items()}  # fmt: skip


def edit(folder: Path, change: Callable[[Tensors], object]) -> None:
    """Write the file of weights anew, with other tensors."""
    tensors = load(folder)
    change(tensors)
    replace(folder / WEIGHTS, safetensors(tensors))


def edit_header(folder: Path, change: Callable[[Entries], object], after: Callable[[bytes], bytes] = bytes) -> None:
    """Write the file of weights anew with the same data behind another header; `after` edits the header's bytes."""
    entries, begin = {}, 0
    tensors = load(folder)
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    change(entries)
    replace(folder / WEIGHTS, after(header(entries)) + b"".join(data for _, _, data in tensors.values()))


def values(tensors: Tensors, name: str, first: Mapping[int, float]) -> None:
    """Put numbers at places of a tensor, counted over all its elements."""
    dtype, shape, data = tensors[name]
    if dtype == "BF16":
        numbers = np.frombuffer(data, "<u2").copy()
        for place, value in first.items():
            numbers[place] = np.array([value], "<f4").view("<u4")[0] >> 16
    else:
        numbers = np.frombuffer(data, NUMBERS[dtype]).copy()
        for place, value in first.items():
            numbers[place] = value
    tensors[name] = dtype, shape, numbers.tobytes()


def embedding(tensors: Tensors) -> str:
    """The name of the table of token vectors."""
    return min((name for name in tensors if EMBEDDING.search(name) and len(tensors[name][1]) == 2), key=len)


def matrix(tensors: Tensors) -> str:
    """The name of a large matrix in the last layer that is not the embedding."""
    table = embedding(tensors)
    return max((name for name in tensors if len(tensors[name][1]) == 2 and ".layer" in name and name != table),
               key=lambda name: (len(tensors[name][2]), name))  # fmt: skip


def vector(tensors: Tensors) -> str:
    """The name of a norm's weight."""
    return max(name for name in tensors if "norm" in name.lower() and name.endswith("weight"))
