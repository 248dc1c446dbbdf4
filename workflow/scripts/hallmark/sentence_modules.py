"""What a sentence encoder's folder says of pooling and of its longest input. Runs no model, and needs no torch.

The layout is that of sentence-transformers: modules.json names the modules, each with a folder of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def pooling(folder: Path) -> str:
    """`mean`, `cls` or `max`, from modules.json and the pooling module's config; `mean` for a plain transformer.

    Raises ValueError for any other pooling, and for modules other than transformer, pooling and normalisation.
    """
    for module in _read(folder / "modules.json") or []:
        kind = module["type"].rpartition(".")[2]
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise ValueError(
                f"{folder / 'modules.json'}: module {kind} is not supported, only pooling and normalisation"
            )
        if kind == "Pooling":
            path = folder / module["path"] / "config.json"
            return _pooling_mode(path, _read(path))
    return "mean"


def _pooling_mode(path: Path, config: Mapping[str, Any]) -> str:
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in names:
        raise ValueError(f"{path}: pooling {', '.join(chosen) or 'of no kind'}; one of {', '.join(names)} is supported")
    return names[chosen[0]]


def longest_input(folder: Path) -> int:
    """Tokens that an input is cut to: sentence-transformers' own limit, else the model's number of positions."""
    limit = _read(folder / "sentence_bert_config.json").get("max_seq_length")
    return int(limit or _read(folder / "config.json").get("max_position_embeddings") or 512)
