"""Inspects an ONNX artifact: what the graph and its files say, and how they differ from the checkpoint's. Runs nothing.

Free dimensions are read from the graph's ports. A size that is baked into a constant inside would not show there: that
is for the accuracy measurement, whose texts have all lengths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hallmark import (
    carried_files,
    census,
    onnx_census,
    onnx_file,
    onnx_weights,
    pairing,
    rope_table,
    sentence_modules,
    source_settings,
    source_tokens,
    source_weights,
)
from hallmark.formats import Inspection
from hallmark.onnx_file import OnnxFile

FILE, GENAI = "model.onnx", "genai_config.json"
BATCH, SEQUENCE = 0, 1
CACHES = ("past", "present")  # ports with a key-value cache: batch, heads, sequence, size of a head
DATA = (".data", "_data")  # ends of the names of data files
COS_TABLE, SIN_TABLE = 7, 8  # inputs of GroupQueryAttention
GENAI_SHAPE = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_size",
}  # fmt: skip


def inspect(files: Path, source: Path, options: Mapping[str, Any]) -> Inspection:
    """The artifact in the folder `files` against the checkpoint in `source`; `options` say what it was to be."""
    file = onnx_file.read(files / FILE)
    config, tokens = source_tokens.read_json(source / "config.json"), source_tokens.read(source)
    carried = source_tokens.read(files)
    tensors = {name: tensor for name, tensor in source_weights.read(source).items() if tensor.is_float}
    readable, unread = onnx_weights.weights(file)
    compared = pairing.pair(readable, tensors, config)
    compared.leave([(tensor.name, tensor.elements) for tensor in unread])
    weights = onnx_census.weights(file)
    share, others = census.other_types(_matrices(weights), _wanted(options))
    frequencies = list(_frequencies(file, config))
    found = _differences(file, files, source, carried, tokens, frequencies)
    broken, parameters = onnx_census.nonfinite(file.tensors), sum(weight.elements for weight in weights)
    metrics: dict[str, float] = {
        "tensors": len(file.tensors),
        "parameters": parameters,
        "bits_per_weight": 8 * sum(tensor.length for tensor in file.tensors) / parameters if parameters else 0.0,
        "nonfinite": sum(broken.values()),
        "opset": file.opsets.get("", 0),
        "other_type_share": share,
        **compared.metrics,
        **{name: len(lines) for name, lines in found.items()},
        "chat_template_mismatch": int(carried.template != tokens.template),
    }
    logits = next((value for value in file.outputs if value.name == "logits"), None)
    if logits is not None and isinstance(logits.dims[-1], int):
        metrics["vocab_size"] = logits.dims[-1]
    lists = {name: census.shorten(lines) for name, lines in found.items() if lines}
    graph = {
        "types": onnx_census.histogram(weights),
        "other_types": others,
        "operations": onnx_census.operations(file),
        "padded": onnx_census.padded(file),
        "nonfinite_in": broken,
        "rope_found_in": [name for name, _ in frequencies],
    }
    return Inspection(metrics, {**_shape_facts(file), **graph, **_text_facts(carried), **compared.facts, **lists})


def _differences(
    file: OnnxFile,
    files: Path,
    source: Path,
    carried: source_tokens.Tokens,
    tokens: source_tokens.Tokens,
    frequencies: list[tuple[str, Any]],
) -> dict[str, list[str]]:
    """What the graph and the files beside it say otherwise than the checkpoint, a line each, by metric."""
    config = source_tokens.read_json(source / "config.json")
    genai = source_tokens.read_json(files / GENAI).get("model", {})
    stops = set(source_tokens.as_list(genai.get("eos_token_id"))) if genai else None
    return {
        "vocabulary_mismatch": carried_files.vocabulary(carried, tokens) + _logits(file, config),
        "special_token_mismatch": carried_files.special_tokens(carried, tokens, stops),
        "rope_mismatch": rope_table.differences(frequencies, config) or rope_table.spoilt(_tables(file), config),
        "config_mismatch": [
            *carried_files.settings(files, source),
            *_stated_sizes(file, genai, config),
            *source_settings.epsilons(onnx_weights.epsilons(file), config),
            *_pooling(files, source),
        ],
        "baked_axes": _baked(file),
        "external_data_mismatch": _unused_data(files, file),
    }


def _matrices(weights: list[onnx_census.Weight]) -> dict[str, int]:
    """Elements of the weights with rows and columns, by type."""
    found: dict[str, int] = {}
    for weight in weights:
        if len(weight.tensor.dims) > 1:
            found[weight.type] = found.get(weight.type, 0) + weight.elements
    return found


def _wanted(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Types that the recipe asks for."""
    if options["method"] == "build":
        mixed = ("int8/",) if options.get("mixed") else ()
        return (f"int{options['bits']}/", *mixed)
    if options["method"] == "dynamic":
        return ("int8", "uint8")
    return ("float16",) if options["precision"] == "fp16" else ("float32",)


def _logits(file: OnnxFile, config: Mapping[str, Any]) -> list[str]:
    """A number of logits that is not the size of the vocabulary."""
    wanted = source_settings.text_config(config).get("vocab_size")
    logits = next((value.dims[-1] for value in file.outputs if value.name == "logits" and value.dims), wanted)
    return [] if wanted is None or logits == wanted else [f"{logits} logits, the source has {wanted} tokens"]


def _stated_sizes(file: OnnxFile, genai: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Sizes that the cache's ports and the runtime's settings state otherwise than the source."""
    decoder = genai.get("decoder", {})
    told = {name: decoder.get(key) for name, key in GENAI_SHAPE.items()} | {"context": genai.get("context_length")}
    caches = [value for value in file.inputs if value.name.startswith(CACHES[0]) and len(value.dims) == 4]
    ports: dict[str, Any] = {}
    if caches:
        heads, size = caches[0].dims[1], caches[0].dims[3]
        ports = {name: value for name, value in (("kv_heads", heads), ("head_dim", size)) if isinstance(value, int)}
    return carried_files.shape(told, config, GENAI) + carried_files.shape(ports, config, "ports")


def _baked(file: OnnxFile) -> list[str]:
    """Batch and sequence dimensions of ports that have a fixed size."""
    found = []
    for value in (*file.inputs, *file.outputs):
        free = (BATCH, 2) if value.name.startswith(CACHES) else (BATCH, SEQUENCE)
        for axis in free:
            if len(value.dims) > axis and isinstance(value.dims[axis], int):
                found.append(f"{value.name}: axis {axis} is {value.dims[axis]}")
    return found


def _unused_data(files: Path, file: OnnxFile) -> list[str]:
    """Data files that the graph does not refer to; those that it lacks are refused when it is read."""
    there = {path.name for path in files.iterdir() if path.name.endswith(DATA) or path.name.startswith(f"{FILE}.")}
    return sorted(f"{name}: not used by {FILE}" for name in there - set(file.external))


def _frequencies(file: OnnxFile, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Rotary frequencies that the graph states: in a table of sines, or as a constant."""
    import numpy as np

    tables = {op.inputs[SIN_TABLE] for op in file.operators if op.type == "GroupQueryAttention" and len(op.inputs) > 8}
    count = int(source_settings.shape(config).get("head_dim", 0)) // 2
    for tensor in (*file.tensors, *file.constants):
        if tensor.name in tables and len(tensor.dims) == 2 and tensor.dims[0] > 1:
            yield tensor.name, np.arcsin(onnx_weights.array(tensor)[1].astype(np.float64))
        elif tensor.elements == count and tensor.type in onnx_weights.FLOATS and tensor.encoding in onnx_weights.PLAIN:
            values = onnx_weights.array(tensor).ravel().astype(np.float64)
            if rope_table.looks_like_frequencies(values, count):
                yield tensor.name, values


def _tables(file: OnnxFile) -> Iterator[tuple[str, str, Any]]:
    """Name, function (`cos`, `sin`) and values of each table of positions."""
    tensors = {tensor.name: tensor for tensor in file.tensors}
    attends = [op for op in file.operators if op.type == "GroupQueryAttention" and len(op.inputs) > SIN_TABLE]
    for place, function in ((COS_TABLE, "cos"), (SIN_TABLE, "sin")):
        for name in sorted({op.inputs[place] for op in attends} & tensors.keys()):
            if tensors[name].type in onnx_weights.FLOATS and len(tensors[name].dims) == 2:
                yield name, function, onnx_weights.array(tensors[name])


def _pooling(files: Path, source: Path) -> list[str]:
    """What sentence-transformers' files beside the graph say of pooling and longest input, if not as the source's."""
    if not (source / "modules.json").is_file():
        return []
    stated, longest = sentence_modules.pooling(files), sentence_modules.longest_input(files)
    return carried_files.pooling(stated, longest, source)


def _shape_facts(file: OnnxFile) -> dict[str, Any]:
    """Producer, operator sets, ports with their free dimensions, and the data files beside the graph."""
    values = [*file.inputs, *file.outputs]
    return {
        "producer": file.producer,
        "opsets": {domain or "ai.onnx": version for domain, version in sorted(file.opsets.items())},
        "inputs": {value.name: [value.type, *value.dims] for value in file.inputs},
        "outputs": {value.name: [value.type, *value.dims] for value in file.outputs},
        "free_dimensions": sorted({size for value in values for size in value.dims if isinstance(size, str)}),
        "external_data": file.external,
    }


def _text_facts(carried: source_tokens.Tokens) -> dict[str, Any]:
    """Special tokens, what ends an answer, and the chat template."""
    template = carried.template
    return {
        "special_tokens": {carried.texts[number]: number for number in sorted(carried.special)},
        "special_token_ids": {role: sorted(numbers) for role, numbers in carried.roles.items()},
        "stop_tokens": sorted(carried.stops),
        "chat_template": {
            "characters": len(template),
            "sha256": hashlib.sha256(template.encode()).hexdigest() if template else None,
        },
    }
