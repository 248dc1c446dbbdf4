"""Sentence embeddings from an ONNX encoder's folder: `python run.py "a text" "another"`. Stands alone, trains nothing.

Prints one JSON array for each text. Needs onnxruntime, tokenizers and numpy, and beside this file the model, the
tokenizer and the configuration files that came with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}


def read_json(path: Path) -> Any:
    """The file's content; an empty dict where there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def pooling_of(folder: Path) -> tuple[str, bool]:
    """`mean`, `cls` or `max`, and whether vectors are scaled to unit length, as sentence-transformers' modules say.

    Without modules.json: the mean over the tokens, unit length. Raises ValueError for any other module or pooling.
    """
    modules = read_json(folder / "modules.json")
    if not modules:
        return "mean", True
    pooling, kinds = "mean", [module["type"].rpartition(".")[2] for module in modules]
    for module, kind in zip(modules, kinds, strict=True):
        if kind == "Pooling":
            pooling = _mode(folder / module["path"] / "config.json")
        elif kind not in ("Transformer", "Normalize"):
            raise ValueError(
                f"modules.json: cannot run a {module['type']} module, only Transformer, Pooling, Normalize"
            )
    return pooling, "Normalize" in kinds


def _mode(path: Path) -> str:
    chosen = [key for key, value in read_json(path).items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise ValueError(
            f"{path}: pooling {', '.join(chosen) or 'of no kind'}; one of {', '.join(POOLINGS)} can be run"
        )
    return POOLINGS[chosen[0]]


class Encoder:
    """The model of a folder, ready to embed. `threads`: CPU threads, 0 lets ONNX Runtime choose."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        self.pooling, self.unit_length = pooling_of(folder)
        self.longest = int(read_json(folder / "sentence_bert_config.json")["max_seq_length"])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = ort.InferenceSession(folder / "model.onnx", settings, providers=["CPUExecutionProvider"])
        self.inputs = {value.name for value in self.session.get_inputs()}

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The text's token ids, special tokens included unless `special` is false, not cut to any length."""
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors, float32 (texts, width), of texts cut to what the model takes.

        Each text runs alone: in a batch, the activation range of dynamic int8 would be that of its neighbours too.
        """
        return np.stack([self._embed(text) for text in texts])

    def _embed(self, text: str) -> np.ndarray:
        tokens = self.tokenizer.encode(text)
        if len(tokens.ids) > self.longest:
            self.tokenizer.enable_truncation(self.longest)
            tokens = self.tokenizer.encode(text)
            self.tokenizer.no_truncation()
        feeds = {"input_ids": tokens.ids, "attention_mask": tokens.attention_mask, "token_type_ids": tokens.type_ids}
        arrays = {name: np.array([values], dtype=np.int64) for name, values in feeds.items() if name in self.inputs}
        hidden = self.session.run(None, arrays)[0][0].astype(np.float32)
        pool = {"mean": lambda: hidden.mean(axis=0), "max": lambda: hidden.max(axis=0), "cls": lambda: hidden[0]}
        vector: np.ndarray = pool[self.pooling]()
        if self.unit_length:
            vector /= max(float(np.linalg.norm(vector)), 1e-12)
        return vector


def main(texts: Sequence[str]) -> int:
    if not texts:
        print('usage: python run.py "a text" ["another" ...]', file=sys.stderr)
        return 2
    for vector in Encoder(Path(__file__).resolve().parent).embed(texts):
        print(json.dumps([round(float(value), 6) for value in vector]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
