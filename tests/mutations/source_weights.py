"""Seeded defects in a checkpoint's weight files: values, headers, shards and index, kinds of weights."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cases.cases import edit_index, pickled
from tests.cases.checkpoints import safetensors, write_index
from tests.mutations.catalogue import Mutation
from tests.mutations.checkpoint_edits import (
    WEIGHTS,
    Entries,
    Tensors,
    edit,
    edit_header,
    edit_json,
    embedding,
    load,
    matrix,
    replace,
    values,
    vector,
)  # fmt: skip

BOTH = ("smollm2", "minilm")
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"
Apply = Callable[[Path], Any]


def weights(change: Callable[[Tensors], object]) -> Apply:
    return lambda folder: edit(folder, change)


def headers(change: Callable[[Entries], object], after: Callable[[bytes], bytes] = bytes) -> Apply:
    return lambda folder: edit_header(folder, change, after)


def halves(folder: Path) -> None:
    """The weights in two shards with a sound index."""
    tensors, mapping = load(folder), {}
    names = list(tensors)
    for number, shard in enumerate(SHARDS):
        part = {name: tensors[name] for name in names[number :: len(SHARDS)]}
        replace(folder / shard, safetensors(part))
        mapping |= dict.fromkeys(part, shard)
    (folder / WEIGHTS).unlink()
    write_index(folder, mapping)


def sharded(damage: Apply) -> Apply:
    def apply(folder: Path) -> None:
        halves(folder)
        damage(folder)

    return apply


def _nan(tensors: Tensors) -> None:
    values(tensors, matrix(tensors), {1000: math.nan})


def _infinite(tensors: Tensors) -> None:
    values(tensors, vector(tensors), {-1: -math.inf})


def _beyond_float16(tensors: Tensors) -> None:
    values(tensors, embedding(tensors), {5: 70000.0})


def _lost(tensors: Tensors) -> None:
    del tensors[matrix(tensors)]


def _lost_norm(tensors: Tensors) -> None:
    del tensors[vector(tensors)]


def _not_gathered(tensors: Tensors) -> None:
    name = matrix(tensors)
    tensors[name] = tensors[name][0], (0,), b""


def _lora(tensors: Tensors) -> None:
    name = matrix(tensors)
    dtype, shape, data = tensors[name]
    size = len(data) // math.prod(shape)
    parts = {"lora_A": (4, shape[1]), "lora_B": (shape[0], 4)}
    stem = name.removesuffix("weight")
    tensors |= {f"{stem}{part}.weight": (dtype, of, bytes(size * math.prod(of))) for part, of in parts.items()}


def _wrapped(tensors: Tensors) -> None:
    for name in list(tensors):
        tensors[f"_orig_mod.{name}"] = tensors.pop(name)


def _packed(tensors: Tensors) -> None:
    name = matrix(tensors)
    size = math.prod(tensors[name][1]) // 2
    tensors[name] = "U8", (size, 1), bytes(size)


def _gptq(tensors: Tensors) -> None:
    name = matrix(tensors)
    rows, columns = tensors.pop(name)[1]
    stem = name.removesuffix("weight")
    tensors[f"{stem}qweight"] = "I32", (columns // 8, rows), bytes(columns * rows // 2)
    tensors[f"{stem}scales"] = "F16", (1, rows), bytes(2 * rows)


def _first_two(entries: Entries) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second, *_ = entries.values()
    return first, second


def _overlap(entries: Entries) -> None:
    first, second = _first_two(entries)
    second["data_offsets"][0] = first["data_offsets"][0]


def _gap(entries: Entries) -> None:
    del entries[list(entries)[1]]


def _other_shape(entries: Entries) -> None:
    first, _ = _first_two(entries)
    first["shape"][0] -= 1


def _unknown_type(entries: Entries) -> None:
    _first_two(entries)[0]["dtype"] = "F31"


def _twice(folder: Path) -> None:
    """The second tensor under the first one's name. Both names need the same length, or the header moves."""
    first, second, *_ = load(folder)
    old, new = json.dumps(second).encode() + b": ", json.dumps(first).encode() + b": "

    def renamed(header: bytes) -> bytes:
        text = header[8:].rstrip(b" ").replace(old, new, 1)
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    edit_header(folder, lambda entries: None, renamed)


def _cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    replace(folder / WEIGHTS, data[: len(data) * 3 // 4])


def _longer(folder: Path) -> None:
    replace(folder / WEIGHTS, (folder / WEIGHTS).read_bytes() + bytes(16))


def _header_cut(folder: Path) -> None:
    replace(folder / WEIGHTS, (folder / WEIGHTS).read_bytes()[:200])


def _lfs_pointer(folder: Path) -> None:
    replace(folder / WEIGHTS, LFS)


def _old_file_beside(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    halves(folder)
    replace(folder / WEIGHTS, whole)


def _other_file(folder: Path) -> None:
    replace(folder / "extra.safetensors", safetensors({"extra.weight": ("F32", (2, 2), bytes(16))}))


def _adapter(folder: Path) -> None:
    edit_json(folder / "adapter_config.json", lambda settings: settings.update(peft_type="LORA", r=4))
    tensors = {"base_model.model.layers.0.q_proj.lora_A.weight": ("F32", (4, 8), bytes(128))}
    replace(folder / "adapter_model.safetensors", safetensors(tensors))


def _quantised(folder: Path) -> None:
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    edit_json(folder / "config.json", lambda config: config.update(quantization_config=settings))


def _drop_from_index(mapping: dict[str, str]) -> None:
    del mapping[max(mapping)]


def _other_shard_in_index(mapping: dict[str, str]) -> None:
    name = max(mapping)
    mapping[name] = SHARDS[mapping[name] == SHARDS[0]]


def seeded(name: str, caught_by: tuple[str, ...], apply: Apply, report: str = "",
           subjects: tuple[str, ...] = BOTH) -> Mutation:  # fmt: skip
    return Mutation(name, "source", subjects, caught_by, apply, report)


MUTATIONS = (
    seeded("nan_in_a_matrix", ("non_finite",), weights(_nan), "axolotl-ai-cloud/axolotl#1191"),
    seeded("infinity_in_a_norm", ("non_finite",), weights(_infinite)),
    seeded("beyond_float16", ("beyond_float16",), weights(_beyond_float16), "tensorflow/tensorflow#43719"),
    seeded("lost_matrix", ("missing",), weights(_lost), "hiyouga/LlamaFactory#7848"),
    seeded("lost_norm", ("missing",), weights(_lost_norm)),
    seeded("not_gathered", ("empty_tensor",), weights(_not_gathered), "OpenRLHF/OpenRLHF#839"),
    seeded("adapter_among_weights", ("unmerged_adapter",), weights(_lora)),
    seeded("adapter_beside_weights", ("unmerged_adapter",), _adapter),
    seeded("wrapper_in_names", ("training_prefix",), weights(_wrapped)),
    seeded("packed_in_four_bits", ("quantised_source",), weights(_packed), "ggml-org/llama.cpp#12494"),
    seeded("quantised_tensors", ("quantised_source",), weights(_gptq)),
    seeded("quantised_by_config", ("quantised_source",), _quantised),
    seeded("tensor_twice", ("doubled_tensor",), _twice, "safetensors/safetensors#401"),
    seeded("tensors_overlap", ("overlap",), headers(_overlap)),
    seeded("bytes_of_no_tensor", ("gap",), headers(_gap)),
    seeded("shape_against_bytes", ("wrong_length",), headers(_other_shape)),
    seeded("type_unknown", ("unknown_type",), headers(_unknown_type)),
    seeded("file_cut_off", ("truncated",), _cut),
    seeded("file_too_long", ("too_long",), _longer, "Comfy-Org/ComfyUI#15602"),
    seeded("header_cut_off", ("bad_header",), _header_cut),
    seeded("pointer_instead_of_file", ("bad_header",), _lfs_pointer),
    seeded("shard_lost", ("missing_shard",), sharded(lambda folder: (folder / SHARDS[1]).unlink())),
    seeded("index_lost", ("no_index",), sharded(lambda folder: (folder / f"{WEIGHTS}.index.json").unlink())),
    seeded("index_without_a_tensor", ("index_lacks_tensor",), sharded(edit_index(_drop_from_index))),
    seeded("index_names_other_shard", ("missing_tensor",), sharded(edit_index(_other_shard_in_index))),
    seeded("file_beside_index", ("file_not_in_index",), sharded(_other_file)),
    seeded("two_weight_sets", ("two_weight_sets",), _old_file_beside),
    seeded("weights_under_other_name", ("other_name",),
           lambda folder: (folder / WEIGHTS).rename(folder / "m.safetensors")),
    seeded("weights_lost", ("no_weights",), lambda folder: (folder / WEIGHTS).unlink()),
    seeded("pickle_that_runs_code", ("dangerous_pickle",), pickled, "pytorch/pytorch#31875"),
)  # fmt: skip
