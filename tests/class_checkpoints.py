"""Writes tiny checkpoints of several architectures, sound and damaged, and what lint's `compare` says of each.

Usage: class_checkpoints.py FOLDER     (in the `torch` toolchain; answers.json is the result)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

from hallmark.lint.model_class import compare
from hallmark.pytorch import CausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 96}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", SIZES),
    "bloom": ("BloomForCausalLM", {"vocab_size": 96, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        {**SIZES, "moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
         "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
         "qk_nope_head_dim": 4, "v_head_dim": 8},
    ),
    "falcon": ("FalconForCausalLM", {"vocab_size": 96, "hidden_size": 16, "num_hidden_layers": 2,
                                     "num_attention_heads": 2}),
    "gemma3_text": ("Gemma3ForCausalLM", SIZES),
    "gpt2": ("GPT2LMHeadModel", GPT),
    "gpt_neox": ("GPTNeoXForCausalLM", SIZES),
    "llama": ("LlamaForCausalLM", SIZES),
    "mamba": ("MambaForCausalLM", {"vocab_size": 96, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}),
    "mixtral": ("MixtralForCausalLM", {**SIZES, "num_local_experts": 4}),
    "modernbert": ("ModernBertForMaskedLM", SIZES),
    "opt": ("OPTForCausalLM", {**SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "phi3": ("Phi3ForCausalLM", SIZES),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**SIZES, **EXPERTS}),
    "roberta": ("RobertaForMaskedLM", SIZES),
    "t5": ("T5ForConditionalGeneration", {"vocab_size": 96, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2,
                                          "num_heads": 2}),
}  # fmt: skip
OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


def write(folder: Path, kind: str, settings: dict[str, Any]) -> Path:
    """A checkpoint as `save_pretrained` writes it."""
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    model_class(model_class.config_class(**settings)).save_pretrained(folder)
    return folder


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return loaded


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def answer(folder: Path, remote_code: bool = False) -> dict[str, Any]:
    return compare({"source": folder}, {"remote_code": remote_code})


def without_a_tensor(folder: Path) -> dict[str, Any]:
    """The answer for the checkpoint without one matrix of its last layer."""
    found = tensors(folder)
    layers = [name for name, tensor in found.items() if ".1." in name and tensor.dim() > 1]
    found.pop(sorted(layers)[-1])
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    return answer(folder)


def damaged(folder: Path) -> dict[str, dict[str, Any]]:
    """Answers for several kinds of damage to a Llama."""
    found = {}
    one = write(folder / "rows", *KINDS["llama"])
    edit_config(one, vocab_size=100)
    found["llama in larger rows"] = answer(one)
    two = write(folder / "buffers", *KINDS["llama"])
    buffers = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(4) for layer in range(2)}
    save_file(tensors(two) | buffers, two / "model.safetensors", metadata={"format": "pt"})
    found["llama with inv_freq"] = answer(two)
    three = write(folder / "layers", "LlamaForCausalLM", {**SIZES, "num_hidden_layers": 3})
    edit_config(three, num_hidden_layers=2)
    found["llama with a layer more"] = answer(three)
    experts = write(folder / "experts", *KINDS["mixtral"])
    rest = tensors(experts)
    del rest["model.layers.1.block_sparse_moe.experts.3.w1.weight"]
    save_file(rest, experts / "model.safetensors", metadata={"format": "pt"})
    found["mixtral without a part of an expert"] = answer(experts)
    found["bert with a head"] = answer(write(folder / "head", *KINDS["bert"]))
    four = write(folder / "class", *KINDS["llama"])
    edit_config(four, architectures=["NoSuchModel"])
    found["unknown class"] = answer(four)
    edit_config(four, model_type="no_such_type")
    found["unknown type"] = answer(four)
    return found


def own_code(folder: Path) -> dict[str, Any]:
    """Answers for a checkpoint whose class lies beside it, and whether the reference opens it."""
    write(folder, *KINDS["llama"])
    (folder / "modeling_own.py").write_text(OWN_CODE, encoding="utf-8")
    mapping = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnModel"}
    edit_config(folder, architectures=["OwnModel"], model_type="own", auto_map=mapping)
    source = CausalLM(folder, 1, remote_code=True)
    logits = source.logits([1, 5, 7])
    return {
        "own code": answer(folder),
        "own code, allowed": answer(folder, remote_code=True),
        "own code, allowed, reference": "answered" if logits.shape == (3, 96) else f"shape {logits.shape}",
    }


def main(out: Path) -> None:
    answers: dict[str, Any] = {}
    for name, (kind, settings) in KINDS.items():
        folder = write(out / name, kind, settings)
        answers[name] = answer(folder)
        answers[f"{name} without a tensor"] = without_a_tensor(folder)
    answers |= damaged(out / "damaged")
    answers |= own_code(out / "own")
    (out / "answers.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
