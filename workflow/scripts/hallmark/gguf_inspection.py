"""Inspects a GGUF file: what it says of itself, and how it differs from the checkpoint it was made from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hallmark import census, gguf_census, gguf_file, gguf_metadata, gguf_programs, source_tokens
from hallmark.formats import Inspection
from hallmark.gguf_file import GgufFile


def inspect(path: Path, source: Path, asked: str) -> Inspection:
    """The file at `path` against the checkpoint in the folder `source`; `asked` is the type it was to be (`Q4_K_M`)."""
    file = gguf_file.read(path)
    nonfinite, unchecked = gguf_file.count_nonfinite(file)
    config, tokens = source_tokens.read_json(source / "config.json"), source_tokens.read(source)
    weights = gguf_census.weights(file, source, config)
    share, others = gguf_census.other_types(file, asked)
    found = {
        "vocabulary_mismatch": gguf_metadata.vocabulary(file, tokens),
        "special_token_mismatch": gguf_metadata.special_tokens(file, tokens),
        "rope_mismatch": gguf_metadata.rope(file, config),
        "config_mismatch": gguf_metadata.shape(file, config) + gguf_metadata.pooling(file, source),
    }
    metrics = {
        "tensors": len(file.tensors),
        "parameters": file.elements,
        "bits_per_weight": file.bits_per_weight,
        "nonfinite": nonfinite,
        "vocab_size": len(file.metadata.get("tokenizer.ggml.tokens", ())),
        "context_length": int(file.of_architecture("context_length") or 0),
        "other_type_share": share,
        **weights.metrics,
        **{name: len(lines) for name, lines in found.items()},
        "chat_template_mismatch": int(gguf_metadata.template(file) != tokens.template),
    }
    differences = {name: census.shorten(lines) for name, lines in found.items() if lines}
    unlooked = {"types_not_checked_for_nonfinite": unchecked} if unchecked else {}
    facts = {**_facts(file), **unlooked, "type_wanted": asked, "other_types": others, **weights.facts, **differences}
    return Inspection(metrics, facts)


def _facts(file: GgufFile) -> dict[str, Any]:
    """What is for people: architecture, types, special tokens, chat template, rope and pooling."""
    metadata, own = file.metadata, f"{file.architecture}."
    template = gguf_metadata.template(file)
    special = [key for key in metadata if key.startswith("tokenizer.ggml.") and key.endswith("_id")]
    return {
        "architecture": file.architecture,
        "type_asked": file.asked_type,
        "types": gguf_file.type_histogram(file.tensors),
        "fallbacks": gguf_programs.fallbacks(file.tensors, file.asked_type),
        "tokenizer": {key: metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")},
        "special_tokens": {key.split(".")[-1]: metadata[key] for key in special},
        "adds": {key: metadata.get(f"tokenizer.ggml.add_{key}_token") for key in ("bos", "eos", "sep")},
        "chat_template": {
            "characters": len(template),
            "sha256": hashlib.sha256(template.encode()).hexdigest() if template else None,
        },
        "rope": {key.removeprefix(own): value for key, value in metadata.items() if key.startswith(f"{own}rope.")},
        "pooling": file.of_architecture("pooling_type"),
        "importance_matrix": {
            key.split(".")[-1]: value for key, value in metadata.items() if key.startswith("quantize.imatrix.")
        },
    }
