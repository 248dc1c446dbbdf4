"""Inspects an OpenVINO artifact: what the IR and its files say, and how they differ from the checkpoint's.

The tokenizer is IR too: its template and special ids are notes in it (rt_info). What it makes of texts is for the
accuracy measurement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hallmark import (
    carried_files,
    census,
    openvino_ir,
    openvino_weights,
    pairing,
    rope_table,
    source_settings,
    source_tokens,
    source_weights,
)
from hallmark.formats import Inspection
from hallmark.openvino_ir import Network

MODEL, WEIGHTS, TOKENIZER, SETTINGS = (
    "openvino_model.xml",
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "runtime.json",
)
DYNAMIC = -1


def inspect(files: Path, source: Path, task: str, options: Mapping[str, Any]) -> Inspection:
    """The artifact in the folder `files` against the checkpoint in `source`; `options` say what it was to be."""
    network, tokenizer = openvino_ir.read(files / MODEL), openvino_ir.read(files / TOKENIZER)
    size = openvino_ir.check_size(network, files / WEIGHTS)
    nonfinite, where = openvino_ir.count_nonfinite(network, files / WEIGHTS)
    config, tokens = source_tokens.read_json(source / "config.json"), source_tokens.read(source)
    tensors = {name: tensor for name, tensor in source_weights.read(source).items() if tensor.is_float}
    scaled = bool(options.get("awq"))
    weighed = scaled or bool(options.get("scale_estimation"))
    readable, unread = openvino_weights.weights(network, files / WEIGHTS, weighed)
    compared = pairing.pair(readable, tensors, config, scaled)
    compared.leave([(constant.name, constant.elements) for constant in unread])
    carried, template = source_tokens.read(files), str(tokenizer.notes.get("chat_template", ""))
    share, others = census.other_types(_matrices(network), _wanted(options))
    frequencies = list(_frequencies(network, files / WEIGHTS, config))
    found = {
        "vocabulary_mismatch": carried_files.vocabulary(carried, tokens) + _logits(network, config),
        "special_token_mismatch": carried_files.special_tokens(carried, tokens) + _noted_ids(tokenizer, tokens),
        "rope_mismatch": rope_table.differences(frequencies, config),
        "config_mismatch": [
            *carried_files.settings(files, source),
            *source_settings.epsilons(openvino_weights.epsilons(network, files / WEIGHTS), config),
            *pooling(files, source),
        ],
        "baked_axes": _baked(network),
    }
    parameters = sum(weight.elements for weight in network.weights)
    metrics: dict[str, float] = {
        "tensors": len(network.weights),
        "parameters": parameters,
        "bits_per_weight": 8 * size / parameters if parameters else 0.0,
        "nonfinite": nonfinite,
        "other_type_share": share,
        **compared.metrics,
        **{name: len(lines) for name, lines in found.items()},
        "chat_template_mismatch": int(template != tokens.template),
    }
    if task == "causal-lm":
        metrics["stateful"] = int(bool(network.states))
    if "logits" in network.outputs:
        metrics["vocab_size"] = network.outputs["logits"]["shape"][-1]
    lists = {name: census.shorten(lines) for name, lines in found.items() if lines}
    facts = {"nonfinite_in": where, "other_types": others, "rope_found_in": [name for name, _ in frequencies]}
    return Inspection(metrics, {**facts, **_facts(files, network, tokenizer, template), **compared.facts, **lists})


def _matrices(network: Network) -> dict[str, int]:
    """Elements of the weights with rows and columns, by type."""
    found: dict[str, int] = {}
    for weight in network.weights:
        if len(weight.shape) > 1 and min(weight.shape[:2]) > 1:
            found[weight.kind] = found.get(weight.kind, 0) + weight.elements
    return found


def _wanted(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Types that the recipe asks for; at 4 bits embeddings and the output layer have 8."""
    if options["bits"] == 16:
        return ("f16",)
    return ("u8", "i8") if options["bits"] == 8 else ("u4", "i4", "u8", "i8")


def _logits(network: Network, config: Mapping[str, Any]) -> list[str]:
    """A number of logits that is not the size of the vocabulary."""
    wanted = source_settings.text_config(config).get("vocab_size")
    found = network.outputs.get("logits", {}).get("shape", [wanted])[-1]
    return [] if wanted is None or found == wanted else [f"{found} logits, the source has {wanted} tokens"]


def pooling(files: Path, source: Path) -> list[str]:
    """What runtime.json says of an encoder's pooling and longest input, where that is not the source's."""
    settings = json.loads((files / SETTINGS).read_text(encoding="utf-8"))
    return carried_files.pooling(settings.get("pooling"), settings.get("max_tokens"), source)


def _noted_ids(tokenizer: Network, tokens: source_tokens.Tokens) -> list[str]:
    """Special ids in the tokenizer's notes that are none of the source's for that role."""
    noted = {role: str(tokenizer.notes.get(f"{role}_token_id", "")) for role in tokens.roles}
    return [
        f"tokenizer's {role}: {noted[role]}, the source has {sorted(numbers)}"
        for role, numbers in tokens.roles.items()
        if noted[role] and int(noted[role]) not in numbers
    ]


def _baked(network: Network) -> list[str]:
    """Batch and sequence dimensions of ports that have a fixed size."""
    ports = {**network.inputs, **network.outputs}
    return [
        f"{name}: axis {axis} is {size}"
        for name, port in ports.items()
        for axis, size in enumerate(port["shape"][:2])
        if size != DYNAMIC
    ]


def _frequencies(network: Network, path: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Constants that are rotary frequencies."""
    import numpy as np

    count = int(source_settings.shape(config).get("head_dim", 0)) // 2
    for constant in network.constants:
        if constant.elements == count and constant.kind in openvino_weights.FLOATS:
            values = openvino_weights.numbers(constant, path).astype(np.float64)
            if rope_table.looks_like_frequencies(values, count):
                yield constant.name, values


def _facts(files: Path, network: Network, tokenizer: Network, template: str) -> dict[str, Any]:
    """What is for people: types, ports, states, settings, and the converted tokenizer's special tokens and template."""
    return {
        "types": openvino_ir.type_histogram(network),
        "inputs": network.inputs,
        "outputs": network.outputs,
        "states": len(network.states),
        "operations": dict(network.operations.most_common()),
        "runtime": json.loads((files / SETTINGS).read_text(encoding="utf-8")),
        "tokenizer": sorted(path.name for path in files.glob("openvino_*tokenizer.xml")),
        "special_tokens": {key: value for key, value in tokenizer.notes.items() if key.endswith("_token_id")},
        "chat_template": {
            "characters": len(template),
            "sha256": hashlib.sha256(template.encode()).hexdigest() if template else None,
        },
        "stop_tokens": _stop_tokens(files),
        "versions": network.notes.get("optimum", {}),
    }


def _stop_tokens(files: Path) -> Any:
    """What generation stops at, as the runtime reads it: a number or a list."""
    for name in ("generation_config.json", "config.json"):
        found = source_tokens.read_json(files / name).get("eos_token_id")
        if found is not None:
            return found
    return None
