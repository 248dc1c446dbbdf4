"""The tokens that language models are compared on, from the articles of the evaluation data. Runs no model.

Windows are the beginnings of different articles, so that they can be resampled as units of their own. What is left of
the articles is the pool, from which prompts are taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POOL_TOKENS = 32_768  # tokens kept for prompts, which must all differ in a speed measurement


def texts(data: Path) -> list[dict[str, str]]:
    """The articles of a data folder, {"title", "text"} each."""
    return [json.loads(line) for line in (data / "text.jsonl").read_text(encoding="utf-8").splitlines() if line]


def choose(
    runner: Any, texts: Sequence[Mapping[str, str]], options: Mapping[str, Any]
) -> tuple[NDArray[np.int32], NDArray[np.int32], list[str]]:
    """The windows (windows, tokens), the pool for prompts (tokens,), and the windows' titles.

    Raises ValueError when the data holds fewer than `blocks`; `more` times as many are taken as far as there are any.
    """
    import numpy as np

    blocks, tokens = int(options["blocks"]), int(options["tokens"])
    most = blocks * int(options.get("more", 1))
    windows: list[list[int]] = []
    rest: list[int] = []
    titles: list[str] = []
    for text in texts:
        ids = runner.encode(text["text"])
        if len(ids) > tokens and len(windows) < most:
            windows.append(ids[:tokens])
            titles.append(text.get("title", ""))
            ids = ids[tokens:]
        rest += ids
        if len(windows) == most and len(rest) >= POOL_TOKENS:
            break
    if len(windows) < blocks:
        have = f"{len(windows)} articles of more than {tokens} tokens"
        raise ValueError(f"the data holds {have}, but blocks is {blocks}: lower blocks or tokens, or give more text")
    return np.array(windows, np.int32), np.array(rest[:POOL_TOKENS], np.int32), titles
