"""What a checkpoint's config.json says of the model's shape and of its rotary positions, under one set of names.

Config.json spells the same thing in several ways; artifacts state it in their own. `differences` compares what both
state. It knows no format.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

SPELLINGS = {
    "context": ("max_position_embeddings", "n_positions", "n_ctx"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "intermediate": ("intermediate_size", "n_inner"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "norm_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_used": ("num_experts_per_tok",),
    "sliding_window": ("sliding_window",),
}
TOLERANCE = 1e-5  # relative; formats keep such numbers as float32
HALF = 2e-3  # relative, of a number in a graph of float16


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of config.json that describes the language model."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else dict(config)


def shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """The model's sizes by the names of SPELLINGS; what config.json does not say is left out."""
    told = text_config(config)
    found = {
        name: next((told[key] for key in keys if told.get(key) is not None), None) for name, keys in SPELLINGS.items()
    }
    if found["kv_heads"] is None:
        found["kv_heads"] = found["heads"]
    if found["head_dim"] is None and found["hidden"] and found["heads"]:
        found["head_dim"] = found["hidden"] // found["heads"]
    if told.get("use_sliding_window") is False:
        found["sliding_window"] = None
    return {name: value for name, value in found.items() if value is not None}


def rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary settings: `base`, `local_base`, `type` (`default` if not scaled), `factor`, `original_context`.

    Empty for a model whose config.json names no rotary settings.
    """
    told = text_config(config)
    settings = told.get("rope_parameters") or told.get("rope_scaling") or {}
    local = settings.get("sliding_attention", {})
    settings = settings.get("full_attention", settings)
    base = settings.get("rope_theta", told.get("rope_theta"))
    if base is None and not settings:
        return {}
    found = {
        "base": 10000.0 if base is None else base,
        "local_base": local.get("rope_theta", told.get("rope_local_base_freq")),
        "type": settings.get("rope_type", settings.get("type", "default")),
        "factor": settings.get("factor"),
        "original_context": settings.get("original_max_position_embeddings"),
    }
    return {name: value for name, value in found.items() if value is not None}


def is_tied(config: Mapping[str, Any]) -> bool:
    """Whether the output is the embedding's table, so that an artifact need not hold a second one.

    Where config.json does not say: of Gemma, whose class ties them. Classes whose config.json may leave it out because
    they do not (Llama, Qwen, Mistral) keep both tables in their checkpoints.
    """
    told = text_config(config)
    return bool(told.get("tie_word_embeddings", str(told.get("model_type", "")).startswith("gemma")))


def differences(expected: Mapping[str, Any], stated: Mapping[str, Any]) -> list[str]:
    """`heads: 4, the source has 8` for each name that both have and that differs."""
    return [
        f"{name}: {stated[name]}, the source has {value}"
        for name, value in sorted(expected.items())
        if name in stated and not same(value, stated[name])
    ]


def epsilons(found: Iterable[float], config: Mapping[str, Any]) -> list[str]:
    """Epsilons of a graph's norms that are not the source's, each with how often it is there."""
    wanted = shape(config).get("norm_epsilon")
    others = Counter(value for value in found if wanted and not math.isclose(value, wanted, rel_tol=HALF))
    return [f"norm_epsilon: {value:.3g} at {count} norms, the source has {wanted}" for value, count in others.items()]


def same(first: Any, second: Any) -> bool:
    """Whether two settings are equal; numbers to within what float32 keeps."""
    if isinstance(first, int | float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=TOLERANCE)
    return bool(first == second)
