"""The sources on PyTorch eager, in float32: the runners that references and speed ratios come from. Measures nothing.

For the toolchain `torch` (torch, transformers). Nothing is compiled, quantised or offloaded, and a checkpoint that
lacks tensors is refused: transformers fills them in at random with a mere warning.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark.sentence_modules import longest_input, pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


class Source:
    """A checkpoint opened with one of transformers' auto classes. The tokenizer is read when it is first needed.

    `remote_code` lets the code run that lies in the folder.
    """

    def __init__(self, folder: Path, threads: int, auto_class: str, remote_code: bool = False) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()  # which would fill the log
        self.torch, self.folder, self._tokenizer = torch, folder, None
        self._reading = {"local_files_only": True, "trust_remote_code": remote_code}
        self.model, loaded = getattr(transformers, auto_class).from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **self._reading
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

            self._tokenizer = AutoTokenizer.from_pretrained(self.folder, **self._reading)
        return self._tokenizer

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids, with the special tokens around the text unless `special` is false; not cut to any length."""
        return list(self._encoded(text, add_special_tokens=special)["input_ids"])

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in the text each token comes from, without special tokens; [] if this tokenizer cannot say."""
        if not self.tokenizer.is_fast:
            return []
        found = self._encoded(text, add_special_tokens=False, return_offsets_mapping=True)
        return [tuple(span) for span in found["offset_mapping"]]

    def _encoded(self, text: str, **how: Any) -> Any:
        return self.tokenizer(text, verbose=False, truncation=False, padding=False, **how)

    def special(self) -> dict[str, Any]:
        """{"added": {text: id} of special and added tokens, "unknown": id or None}."""
        special = zip(self.tokenizer.all_special_tokens, self.tokenizer.all_special_ids, strict=True)
        return {
            "added": dict(
                sorted({**self.tokenizer.get_added_vocab(), **dict(special)}.items(), key=lambda item: item[1])
            ),
            "unknown": self.tokenizer.unk_token_id,
        }

    def chat(self) -> tuple[str, dict[str, str]]:
        """The default chat template ('' without one), and the special tokens' texts by the names that templates use."""
        template = self.tokenizer.chat_template or ""
        if isinstance(template, dict):
            template = template.get("default", "")
        tokens = {name: text for name, text in self.tokenizer.special_tokens_map.items() if isinstance(text, str)}
        return template, tokens


class CausalLM(Source):
    """A language model, one sequence at a time.

    `stops` end an answer by the checkpoint's generation settings; `positions` is how long a text it claims to take.
    """

    def __init__(self, folder: Path, threads: int, remote_code: bool = False) -> None:
        super().__init__(folder, threads, "AutoModelForCausalLM", remote_code)
        self._cache: Any = None
        ends = self.model.generation_config.eos_token_id
        self.stops = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self.positions = int(getattr(self.model.config, "max_position_embeddings", None) or sys.maxsize)

    def chat_prompt(self, text: str) -> list[int]:
        """Token ids of the text as a user's turn in the model's chat template; of the plain text where it has none."""
        if not self.tokenizer.chat_template:
            return self.encode(text)
        turn = [{"role": "user", "content": text}]
        rendered = self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(rendered, add_special_tokens=False)["input_ids"])

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
        self._cache, self._row = answer.past_key_values, answer.logits[0, -1]
        return int(self._row.argmax())

    def scores(self) -> Floats:
        found: Floats = self._row.float().numpy()
        return found


class Encoder(Source):
    """A sentence encoder laid out as sentence-transformers does: a transformer, pooling, and perhaps normalisation.

    Prompts that the checkpoint's own configuration may name are not applied.
    """

    def __init__(self, folder: Path, threads: int, remote_code: bool = False) -> None:
        self._pool = pooling(folder)
        super().__init__(folder, threads, "AutoModel", remote_code)
        self.longest = longest_input(folder)

    def embed(self, texts: Sequence[str]) -> Floats:
        with self.torch.inference_mode():
            batch = self.tokenizer(
                list(texts), padding=True, truncation=True, max_length=self.longest, return_tensors="pt"
            )
            states = self.model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
            vectors = self.torch.nn.functional.normalize(self._pooled(states, mask), dim=-1)
        found: Floats = vectors.numpy()
        return found

    embed_together = embed  # which pads a batch to its longest text

    def _pooled(self, states: Any, mask: Any) -> Any:
        if self._pool == "cls":
            return states[:, 0]
        if self._pool == "max":
            return states.masked_fill(mask == 0, float("-inf")).amax(1)
        return (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
