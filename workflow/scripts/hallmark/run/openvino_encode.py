"""Sentence embeddings from an OpenVINO encoder's folder: `python run.py "a text" "another"`. Stands alone.

Prints one JSON array for each text. Needs openvino, openvino-tokenizers and numpy, and beside this file the model, the
tokenizer and runtime.json that came with it: the settings with which the model was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_tokenizers  # noqa: F401  registers the tokenizer's operations

MODEL, TOKENIZER, SETTINGS = "openvino_model.xml", "openvino_tokenizer.xml", "runtime.json"


def start(folder: Path, threads: int = 0) -> tuple[openvino.Core, dict[str, Any]]:
    """OpenVINO, and the folder's settings with the number of threads added. `threads`: 0 lets OpenVINO choose."""
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    if threads:
        settings["properties"]["INFERENCE_NUM_THREADS"] = threads
    return openvino.Core(), settings


def open_tokenizer(core: openvino.Core, folder: Path) -> Any:
    """The tokenizer, ready to be called with a list of texts."""
    return core.compile_model(folder / TOKENIZER, "CPU")


class Encoder:
    """The model of a folder, ready to embed. `about` says with which settings."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        core, self.about = start(folder, threads)
        self.tokenizer = open_tokenizer(core, folder)
        self.model = core.compile_model(folder / MODEL, self.about["device"], self.about["properties"])
        self.inputs = {name for port in self.model.inputs for name in port.get_names()}

    def encode(self, text: str) -> list[int]:
        """The text's token ids, special tokens included, cut to what the model takes."""
        ids: list[int] = self.tokenizer([text])["input_ids"][0].tolist()
        return ids

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, float32 (texts, width). Each text runs alone, so no other one changes its vector."""
        return np.stack([self._embed(text) for text in texts])

    def _embed(self, text: str) -> np.ndarray:
        tokens = self.tokenizer([text])
        feeds = {port.get_any_name(): tokens[port] for port in self.tokenizer.outputs}
        hidden = self.model({name: value for name, value in feeds.items() if name in self.inputs})[0][0]
        vector = pool(hidden, self.about["pooling"])
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


def pool(hidden: np.ndarray, how: str) -> np.ndarray:
    """One text's vector, float32, from its token vectors `hidden` (tokens, width)."""
    formulas = {"cls": lambda: hidden[0], "max": lambda: hidden.max(axis=0), "mean": lambda: hidden.mean(axis=0)}
    return np.asarray(formulas[how](), dtype=np.float32)


def main(texts: Sequence[str]) -> int:
    if not texts:
        print('usage: python run.py "a text" ["another" ...]', file=sys.stderr)
        return 2
    for vector in Encoder(Path(__file__).resolve().parent).embed(texts):
        print(json.dumps([round(float(value), 6) for value in vector]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
