"""Writes small Llama checkpoints with numpy alone, sound ones; what breaks them is in `cases`."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, HIDDEN, LAYERS, HEADS, INNER = 512, 32, 2, 4, 48
INDEX = "model.safetensors.index.json"

Tensor = tuple[str, tuple[int, ...], bytes]
Tensors = dict[str, Tensor]


@dataclass
class Parts:
    """What a checkpoint is written from; a case changes it."""

    tensors: Tensors
    config: dict[str, Any]
    documents: dict[str, Any]  # JSON files by name
    files: dict[str, bytes] = field(default_factory=dict)
    shards: int = 1
    indexed: bool = True


def bfloat16(values: np.ndarray[Any, Any]) -> bytes:
    """The upper half of float32, without rounding."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def tensor(shape: tuple[int, ...], seed: int) -> Tensor:
    values = np.random.default_rng(seed).normal(0, 0.05, shape) if len(shape) > 1 else np.ones(shape)
    return "BF16", shape, bfloat16(values)


def llama(vocabulary: int = VOCABULARY, layers: int = LAYERS) -> Tensors:
    """The tensors of a tiny Llama with a head of its own."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, HIDDEN)}
    for layer in range(layers):
        here = f"model.layers.{layer}."
        shapes |= {f"{here}self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"}
        shapes |= {f"{here}mlp.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")}
        shapes |= {f"{here}mlp.down_proj.weight": (HIDDEN, INNER)}
        shapes |= {f"{here}{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (vocabulary, HIDDEN)}
    return {name: tensor(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}


def byte_symbols() -> list[str]:
    """The 256 printable characters that byte-level BPE writes bytes as (GPT-2's `bytes_to_unicode`)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def tokenizer(vocabulary: int = VOCABULARY) -> dict[str, Any]:
    """tokenizer.json of a byte-level BPE: three special tokens, the bytes, and merges of letters up to the size."""
    letters = "etaoinshrdlu"
    tokens = ["<unk>", "<s>", "</s>", *byte_symbols()]
    merges = [[first, second] for first in ("Ġ", *letters) for second in letters][: vocabulary - len(tokens)]
    merges += [[a + b, c] for a, b in merges for c in letters if a != "Ġ"][: vocabulary - len(tokens) - len(merges)]
    tokens += ["".join(pair) for pair in merges]
    special = [
        {"id": number, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for number, token in enumerate(tokens[:3])
    ]  # fmt: skip
    piece = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": piece,
        "post_processor": None,
        "decoder": piece,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges,
        },
    }  # fmt: skip


def parts(vocabulary: int = VOCABULARY) -> Parts:
    """A sound checkpoint."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": vocabulary, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                "unk_token": "<unk>"}  # fmt: skip
    documents = {"tokenizer.json": tokenizer(), "tokenizer_config.json": settings}
    return Parts(llama(vocabulary), config, documents)


def header(entries: Mapping[str, Any]) -> bytes:
    """A safetensors header: its length, and JSON padded to eight bytes."""
    raw = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw


def safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file, its tensors one behind the other."""
    entries, position = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + len(data)]}
        position += len(data)
    return header(entries) + b"".join(data for _, _, data in tensors.values())


def empty_file(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A bfloat16 safetensors file of zeros that takes no room on disk, however large the tensors."""
    entries, position = {}, 0
    for name, shape in shapes.items():
        end = position + 2 * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [position, end]}
        position = end
    first = header(entries)
    with path.open("wb") as file:
        file.write(first)
        file.truncate(len(first) + position)


def write(folder: Path, made: Parts) -> None:
    """Write a checkpoint into an empty or new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ({"config.json": made.config} | made.documents).items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    for name, data in made.files.items():
        (folder / name).write_bytes(data)
    if made.shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(made.tensors))
        return
    mapping = {}
    for number in range(made.shards):
        file = f"model-{number + 1:05d}-of-{made.shards:05d}.safetensors"
        part = dict(sorted(made.tensors.items())[number :: made.shards])
        (folder / file).write_bytes(safetensors(part))
        mapping |= dict.fromkeys(part, file)
    if made.indexed:
        write_index(folder, mapping)


def write_index(folder: Path, mapping: Mapping[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": mapping}), encoding="utf-8")
