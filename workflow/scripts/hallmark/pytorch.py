"""The sources on PyTorch eager, in float32: the runners that references and speed ratios come from. Measures nothing.

For the toolchain `torch` (torch, transformers). Nothing is compiled, quantised or offloaded, and a checkpoint that
lacks tensors is refused: transformers fills them in at random with a mere warning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


class Source:
    """A checkpoint opened with one of transformers' auto classes. The tokenizer is read when it is first needed."""

    def __init__(self, folder: Path, threads: int, auto_class: str, **settings: Any) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()  # which would fill the log
        self.torch, self.folder, self._tokenizer = torch, folder, None
        self.model, loaded = getattr(transformers, auto_class).from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True, **settings
        )
        for what in ("missing_keys", "mismatched_keys"):
            if loaded.get(what):
                names = ", ".join(sorted(str(name) for name in loaded[what])[:5])
                raise ValueError(
                    f"{folder}: {what.replace('_', ' ')}: {names}; the checkpoint and its config do not fit"
                )
        self.model.eval()

    @property
    def tokenizer(self) -> Any:
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
        return self._tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids with special tokens, not cut to any length."""
        return list(self.tokenizer(text, verbose=False, truncation=False, padding=False)["input_ids"])


class CausalLM(Source):
    """A language model, one sequence at a time."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder, threads, "AutoModelForCausalLM")
        self._cache: Any = None

    def logits(self, ids: Sequence[int]) -> Floats:
        with self.torch.inference_mode():
            answer = self.model(self.torch.tensor([list(ids)]), use_cache=False)
        found: Floats = answer.logits[0].float().numpy()
        return found

    def prefill(self, ids: Sequence[int]) -> int:
        self._cache = None
        return self._step(ids)

    def decode(self, token: int) -> int:
        return self._step([token])

    def _step(self, ids: Sequence[int]) -> int:
        with self.torch.inference_mode():
            answer = self.model(
                self.torch.tensor([list(ids)]), past_key_values=self._cache, use_cache=True, logits_to_keep=1
            )
        self._cache = answer.past_key_values
        return int(answer.logits[0, -1].argmax())


class Encoder(Source):
    """A sentence encoder laid out as sentence-transformers does: a transformer, pooling, and perhaps normalisation.

    Prompts that the checkpoint's own configuration may name are not applied.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._pool = pooling(folder)
        super().__init__(folder, threads, "AutoModel")
        self._longest = longest_input(folder)

    def embed(self, texts: Sequence[str]) -> Floats:
        with self.torch.inference_mode():
            batch = self.tokenizer(
                list(texts), padding=True, truncation=True, max_length=self._longest, return_tensors="pt"
            )
            states = self.model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
            vectors = self.torch.nn.functional.normalize(self._pooled(states, mask), dim=-1)
        found: Floats = vectors.numpy()
        return found

    def _pooled(self, states: Any, mask: Any) -> Any:
        if self._pool == "cls":
            return states[:, 0]
        if self._pool == "max":
            return states.masked_fill(mask == 0, float("-inf")).amax(1)
        return (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)


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
