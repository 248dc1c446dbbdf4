"""How much memory and disk a job needs, before it starts, from the facts that the lock holds. It measures nothing.

Facts: `parameters`, `largest` (elements of the largest tensor), `weight_bytes` (as stored) and `vocab_size`.
`benchmarks/memory` sets the estimates against measured peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hallmark import tasks
from hallmark.formats import Memory

MB = 1_000_000
HARNESS = 300  # MB of a process that has imported lm-evaluation-harness
ENGINE = 1_100  # MB of a process that has imported torch or a runtime and loaded nothing


def _float32(facts: Mapping[str, Any]) -> float:
    return 4 * int(facts.get("parameters") or 0) / MB


def checkpoint_disk(facts: Mapping[str, Any]) -> int:
    """MB on disk of a checkpoint in float32, which no artifact exceeds."""
    return round(_float32(facts)) + 20


def fetch_memory(facts: Mapping[str, Any]) -> int:
    """MB to turn a GGUF into a float32 checkpoint: the weights twice, once as read and once as written."""
    return round(ENGINE + 2.2 * _float32(facts))


def lint_memory() -> int:
    """MB of a worker with torch that builds a model without values (350 for Llama 70B), and of the reader of values."""
    return 500


def convert_memory(memory: Memory, facts: Mapping[str, Any]) -> int:
    """MB of a conversion by the variant's own formula."""
    needed = memory.base + memory.per_weight_byte * _float32(facts) * MB
    return round((needed + memory.per_largest * int(facts.get("largest") or 0)) / MB)


def reference_memory(facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """MB to run the source: its weights, and one block of logits three times (logits, log-probabilities, a copy)."""
    return round(ENGINE + 1.3 * _float32(facts) + 3 * _logits(facts, int(options.get("tokens", 0))))


def _logits(facts: Mapping[str, Any], tokens: int) -> float:
    return 4 * tokens * int(facts.get("vocab_size") or 0) / MB


def reference_disk(task: str, facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """MB of a model's stored reference."""
    size: int = tasks.get(task).reference_bytes(options, int(facts.get("vocab_size") or 0))
    return round(size / MB) + 5


def accuracy_memory(facts: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """MB to run an artifact and compare it block by block; some runtimes compute the logits of a whole long text."""
    block, long = (_logits(facts, int(options.get(name, 0))) for name in ("tokens", "long_tokens"))
    return round(ENGINE + 1.5 * _float32(facts) + max(5 * block, 2 * long))


def loadgen_memory(facts: Mapping[str, Any]) -> int:
    """MB of the engine that LoadGen drives, and of LoadGen with its logs."""
    return round(ENGINE + 1.5 * _float32(facts) + 100)


def choices_memory(facts: Mapping[str, Any]) -> int:
    """MB to run an engine on a question of 500 tokens, beside the harness that asks it."""
    return round(HARNESS + ENGINE + 1.5 * _float32(facts) + 3 * _logits(facts, 500))


def speed_memory(facts: Mapping[str, Any]) -> int:
    """MB of both engines of a speed measurement."""
    return round(2 * ENGINE + 3 * _float32(facts))
