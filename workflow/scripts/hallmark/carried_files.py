"""The small files that an artifact carries beside its graph, against the source's: tokenizer, configuration, template.

Compares what they say and not their bytes: a file may be written anew in another layout. Reads no graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import sentence_modules, source_settings, source_tokens
from hallmark.source_tokens import Tokens

# Keys that writers of config.json add or drop, and that say nothing of the model.
IDLE = frozenset((
    "_name_or_path", "transformers_version", "torch_dtype", "dtype", "architectures", "model_type", "use_cache",
    "gradient_checkpointing", "_attn_implementation_autoset",
))  # fmt: skip


def vocabulary(carried: Tokens, source: Tokens) -> list[str]:
    """Tokens whose text differs, or that only one of them has; merges that are others."""
    numbers = sorted(carried.texts.keys() | source.texts.keys())
    merges = source_tokens.merge_differences(carried.merges, source.merges)
    return merges + [
        f"{number}: {carried.texts.get(number)!r}, the source has {source.texts.get(number)!r}"
        for number in numbers
        if carried.texts.get(number) != source.texts.get(number)
    ]


def special_tokens(carried: Tokens, source: Tokens, stops: set[int] | None = None) -> list[str]:
    """Special ids and flags that differ, and stop tokens that are lost. `stops` are those the runtime has by itself."""
    found = [
        f"{role}: {sorted(carried.roles.get(role, ()))}, the source has {sorted(numbers)}"
        for role, numbers in source.roles.items()
        if carried.roles.get(role) != numbers
    ]
    for role, expected in source.adds.items():
        adds = carried.adds.get(role)
        if None not in (adds, expected) and adds != expected:
            found.append(f"add_{role}_token: {adds}, the source has {expected}")
    if carried.texts and carried.special != source.special:
        found.append(f"tokens that are special: {len(carried.special)}, the source has {len(source.special)}")
    lost = source.stops - (carried.stops if stops is None else stops)
    return found + [f"stop token {number} is lost" for number in sorted(lost)]


def settings(files: Path, source: Path) -> list[str]:
    """What the config.json beside the graph says otherwise than the source's; it is read by runtimes and by people."""
    carried, config = (source_tokens.read_json(folder / "config.json") for folder in (files, source))
    return [
        f"config.json: {key} is {_short(carried.get(key))}, the source has {_short(config.get(key))}"
        for key in sorted((carried.keys() | config.keys()) - IDLE)
        if not source_settings.same(carried.get(key), config.get(key))
    ]


def pooling(stated: str | None, longest: int | None, source: Path) -> list[str]:
    """What an encoder's own settings say of its pooling and its longest input, where that is not the source's."""
    if stated is None:
        return []
    wanted, most = sentence_modules.pooling(source), sentence_modules.longest_input(source)
    found = [] if stated == wanted else [f"pooling: {stated}, the source has {wanted}"]
    return found + ([] if longest in (None, most) else [f"longest input: {longest}, the source has {most}"])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def shape(stated: Mapping[str, Any], config: Mapping[str, Any], where: str) -> list[str]:
    """Sizes that a runtime's own settings state otherwise than the source; names as in `source_settings.SPELLINGS`."""
    told = {name: value for name, value in stated.items() if value is not None}
    return [f"{where}: {line}" for line in source_settings.differences(source_settings.shape(config), told)]
