"""How much memory and disk a job needs, before it starts, from the facts that the lock holds. It measures nothing.

Facts: `parameters`, `largest` (elements of the largest tensor), `weight_bytes` (as stored) and `vocab_size`.
`benchmarks/memory` sets the estimates against measured peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hallmark import tasks
from hallmark.formats import Spec

MB = 1_000_000
ENGINE = 1_100  # MB of a process that has imported torch or a runtime and loaded nothing


def _float32(facts: Mapping[str, Any]) -> float:
    return 4 * int(facts.get("parameters") or 0) / MB


def checkpoint_disk(facts: Mapping[str, Any]) -> int:
    """MB on disk of a checkpoint in float32, which no artifact exceeds."""
    return round(_float32(facts)) + 20


def fetch_memory(facts: Mapping[str, Any]) -> int:
    """MB to turn a GGUF into a float32 checkpoint: the weights twice, once as read and once as written."""
    return round(ENGINE + 2.2 * _float32(facts))


def convert_memory(spec: Spec, facts: Mapping[str, Any]) -> int:
    """MB of a conversion by the format's own formula."""
    needed = spec.memory.base + spec.memory.per_weight_byte * _float32(facts) * MB
    return round((needed + spec.memory.per_largest * int(facts.get("largest") or 0)) / MB)


def reference_memory(facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """MB to run the source: its weights, and one block of logits three times (logits, log-probabilities, a copy)."""
    return round(ENGINE + 1.3 * _float32(facts) + 3 * _block(facts, options))


def _block(facts: Mapping[str, Any], options: Mapping[str, Any]) -> float:
    return 4 * int(options.get("tokens", 0)) * int(facts.get("vocab_size") or 0) / MB


def reference_disk(task: str, facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """MB of a model's stored reference."""
    size: int = tasks.get(task).reference_bytes(options, int(facts.get("vocab_size") or 0))
    return round(size / MB) + 5


def accuracy_memory(facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """MB to run an artifact and compare it block by block."""
    return round(ENGINE + 1.5 * _float32(facts) + 5 * _block(facts, options))


def speed_memory(facts: Mapping[str, Any]) -> int:
    """MB of both engines of a speed measurement."""
    return round(2 * ENGINE + 3 * _float32(facts))
