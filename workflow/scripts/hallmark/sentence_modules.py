"""What a sentence encoder's folder says of pooling and of its longest input. Runs no model, and needs no torch.

The layout is that of sentence-transformers: modules.json names the modules, each with a folder of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Model types of transformers whose first token has the position after the padding token's id.
COUNT_FROM_PADDING = frozenset((
    "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
))  # fmt: skip
ENDLESS = 1e9  # transformers writes 10^30 for a tokenizer without a limit


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
    """Tokens that an input is cut to: sentence-transformers' own limit, else what tokenizer and positions both allow.

    The second is what sentence-transformers takes by itself, with the one thing that the tokenizer knows and the
    model's configuration does not say: of RoBERTa's 514 positions a text can have 512.
    """
    limit = _read(folder / "sentence_bert_config.json").get("max_seq_length")
    if limit:
        return int(limit)
    config = _read(folder / "config.json")
    positions = config.get("max_position_embeddings")
    if positions and config.get("model_type") in COUNT_FROM_PADDING:
        positions -= 1 + config.get("pad_token_id", 1)
    limits = (positions, _read(folder / "tokenizer_config.json").get("model_max_length"))
    return int(min((limit for limit in limits if limit and limit < ENDLESS), default=512))
