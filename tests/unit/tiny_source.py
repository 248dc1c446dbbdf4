"""A tiny Llama checkpoint made with numpy alone, for tests that compare artifacts with their source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS, VOCABULARY = 64, 96, 4, 2, 2, 40
HEAD = HIDDEN // HEADS
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
    "vocab_size": VOCABULARY, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MODULES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER),
    "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
}  # fmt: skip


def tensors() -> dict[str, np.ndarray]:
    """The weights by name, float32."""
    generator = np.random.default_rng(7)
    shapes = {
        f"model.layers.{layer}.{module}.weight": shape for layer in range(LAYERS) for module, shape in MODULES.items()
    }
    shapes |= {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    return {name: generator.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def texts() -> list[str]:
    """The tokens' texts by id."""
    return ["<unk>", "<s>", "</s>", "<|stop|>", *(f"t{number}" for number in range(4, VOCABULARY))]


def write(folder: Path, weights: dict[str, np.ndarray] | None = None, **config: Any) -> Path:
    """Write the checkpoint; `config` overrides settings of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors() if weights is None else weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path, names: list[str] | None = None, starts: bool = True) -> None:
    """Write the tokenizer's files and the chat template; `starts`: a BOS is put before a text."""
    names = texts() if names is None else names
    added = [{"id": number, "content": names[number], "special": True} for number in range(4)]
    single = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]
    content = {
        "added_tokens": added,
        "model": {"type": "BPE", "vocab": {name: number for number, name in enumerate(names)}},
        "post_processor": {"type": "TemplateProcessing", "single": single if starts else single[1:]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
