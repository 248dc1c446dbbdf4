"""Turn a GGUF back into a float32 checkpoint that transformers, optimum and llama.cpp's converter read.

For the architectures in ARCHITECTURES. It does not undo quantisation: the weights are the values that the GGUF stands
for, so they lie on its grid. Bytes depend on the GGUF alone. Runs in the toolchain `torch` (gguf, numpy, safetensors,
tokenizers, sentencepiece, protobuf), though it imports no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import rebuilt_tokenizer
from hallmark.progress import track

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader

Fields = Mapping[str, Any]
WEIGHTS = "model.safetensors"


class Unsupported(Exception):
    """This GGUF cannot be turned back. The text says what is in the way and what there is instead."""


def unpermute(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Undo the reordering of rotary rows that llama.cpp's converter does for Llama (`LlamaModel.permute`)."""
    rows = tensor.shape[0] // heads // 2
    return tensor.reshape(heads, rows, 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def _llama_tensor(name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    if name.endswith("q_proj.weight"):
        return unpermute(tensor, config["num_attention_heads"])
    if name.endswith("k_proj.weight"):
        return unpermute(tensor, config["num_key_value_heads"])
    return tensor


def _gemma_tensor(name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Gemma's norms multiply by one plus the weight; llama.cpp's converter adds the one to the file."""
    return tensor - 1 if name.endswith("norm.weight") else tensor


def _llama_config(fields: Fields) -> dict[str, Any]:
    return {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


def _gemma_config(fields: Fields) -> dict[str, Any]:
    """Where GGUF has no key, what llama.cpp assumes for the architecture: local rope base, every sixth layer global."""
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": fields["attention.key_length"],
        "sliding_window": fields["attention.sliding_window"],
        "rope_local_base_freq": 10000.0,
        "layer_types": [
            "full_attention" if (layer + 1) % 6 == 0 else "sliding_attention" for layer in range(fields["block_count"])
        ],
    }


@dataclass(frozen=True)
class Architecture:
    """How one `general.architecture` maps back: names and settings in config.json, tensors' names and values."""

    name: str
    model_type: str
    config: Callable[[Fields], dict[str, Any]]
    blocks: Mapping[str, str]
    restore: Callable[[str, Any, Mapping[str, Any]], Any]


_PROJECTIONS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
}
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(
        "LlamaForCausalLM",
        "llama",
        _llama_config,
        {**_PROJECTIONS, "ffn_norm": "post_attention_layernorm"},
        _llama_tensor,
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        "gemma3_text",
        _gemma_config,
        {
            **_PROJECTIONS,
            "attn_q_norm": "self_attn.q_norm",
            "attn_k_norm": "self_attn.k_norm",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
        _gemma_tensor,
    ),
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def materialise(inputs: Mapping[str, Path], out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the checkpoint of `inputs["source"]` (a GGUF, or a folder with one) into the folder `out`. No options yet.

    Returns {"architecture", "tensors", "parameters", "quantisation": {type: tensors}, "tokenizer": {...}}. Raises
    Unsupported for an architecture, tensor or tokenizer it does not know, and WrongTokenizer when the tokenizer that it
    wrote does not answer like the GGUF's.
    """
    from gguf import GGUFReader

    reader = GGUFReader(_gguf_in(inputs["source"]))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = architecture_of(fields)
    config = config_of(fields, architecture, reader)
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "config.json", config)
    tokens = {key: value for key, value in config.items() if key.endswith("_token_id")}
    _write_json(out / "generation_config.json", tokens)
    tokenizer = rebuilt_tokenizer.write(fields, out, config["max_position_embeddings"])
    notes = _write_weights(reader, architecture, config, out / WEIGHTS)
    return {"architecture": architecture.name, **notes, "tokenizer": tokenizer}


def _gguf_in(source: Path) -> Path:
    if source.is_file():
        return source
    found = sorted(source.glob("*.gguf"))
    if len(found) != 1:
        raise Unsupported(f"{source}: wants one .gguf file, has {', '.join(f.name for f in found) or 'none'}")
    return found[0]


def architecture_of(fields: Fields) -> Architecture:
    """The architecture of a GGUF's keys. Raises Unsupported, naming those that can be turned back, for any other."""
    name = str(fields.get("general.architecture"))
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise Unsupported(f"general.architecture is {name!r}; GGUFs of {known} can be turned back")
    return ARCHITECTURES[name]


def config_of(fields: Fields, architecture: Architecture, reader: GGUFReader) -> dict[str, Any]:
    """config.json in the older spelling (rope_theta beside the rest), which transformers 4 and 5 both read."""
    prefix = f"{fields['general.architecture']}."
    own = {key.removeprefix(prefix): _exact(value) for key, value in fields.items() if key.startswith(prefix)}
    scaled = [key for key in own if key.startswith("rope.scaling") and own[key] not in ("none", 0)]
    if scaled:
        raise Unsupported(f"rope scaling ({', '.join(scaled)}) cannot be turned back yet")
    shapes = {tensor.name: tuple(int(size) for size in reversed(tensor.shape)) for tensor in reader.tensors}
    heads = own["attention.head_count"]
    config = {
        "architectures": [architecture.name],
        "model_type": architecture.model_type,
        "dtype": "float32",
        "vocab_size": shapes["token_embd.weight"][0],
        "hidden_size": own["embedding_length"],
        "intermediate_size": own["feed_forward_length"],
        "num_hidden_layers": own["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": own.get("attention.head_count_kv", heads),
        "max_position_embeddings": own["context_length"],
        "rms_norm_eps": own["attention.layer_norm_rms_epsilon"],
        "rope_theta": own.get("rope.freq_base", 10000.0),
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": "output.weight" not in shapes,
        "use_cache": True,
    }
    if "attention.key_length" in own:
        config["head_dim"] = own["attention.key_length"]
    ids = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    config |= {key: fields[f"tokenizer.ggml.{name}_token_id"] for key, name in ids.items() if _has_id(fields, name)}
    return config | architecture.config(own)


def _has_id(fields: Fields, name: str) -> bool:
    return f"tokenizer.ggml.{name}_token_id" in fields


def _exact(value: Any) -> Any:
    """The shortest number that is the same float32: 1e-05 for 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value))) if isinstance(value, float) else value


def hf_name(name: str, architecture: Architecture) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`. Raises Unsupported for any other tensor."""
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if block and block[2] in architecture.blocks:
        return f"model.layers.{block[1]}.{architecture.blocks[block[2]]}.weight"
    top = name.removesuffix(".weight")
    if top in _TOP:
        return f"{_TOP[top]}.weight"
    raise Unsupported(f"tensor {name!r} has no place in {architecture.name}")


def _tensors(
    reader: GGUFReader, architecture: Architecture, config: Mapping[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
    import numpy as np
    from gguf import dequantize

    for tensor in track(reader.tensors, "tensors"):
        name = hf_name(tensor.name, architecture)
        shape = tuple(int(size) for size in reversed(tensor.shape))
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False).reshape(shape)
        yield name, np.ascontiguousarray(architecture.restore(name, values, config))


def _write_weights(
    reader: GGUFReader, architecture: Architecture, config: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    from safetensors.numpy import save_file

    tensors = dict(_tensors(reader, architecture, config))
    expected = {f"model.layers.{layer}.{name}.weight" for layer in range(config["num_hidden_layers"])
                for name in architecture.blocks.values()}  # fmt: skip
    missing = sorted(expected - tensors.keys())
    if missing:
        raise Unsupported(f"{len(missing)} tensors are missing, the first is {missing[0]}")
    save_file(tensors, path, metadata={"format": "pt"})
    types: dict[str, int] = {}
    for tensor in reader.tensors:
        types[tensor.tensor_type.name] = types.get(tensor.tensor_type.name, 0) + 1
    parameters = sum(int(tensor.size) for tensor in tensors.values())
    return {"tensors": len(tensors), "parameters": parameters, "quantisation": dict(sorted(types.items()))}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
