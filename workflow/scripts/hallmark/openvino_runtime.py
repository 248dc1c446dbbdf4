"""Runs OpenVINO artifacts for measuring, with the settings of their own runtime.json. Generates no text.

For the OpenVINO toolchain. What a bundle's run.py does with the same files gives the same tokens and vectors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import padded_batch
from hallmark.run import openvino_encode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AFTER_OUTPUT_LAYER = ("Convert", "Add", "Multiply", "Divide", "Tanh", "Transpose", "Reshape")
END = 2**63 - 1


class LanguageModel:
    """A stateful language model, one sequence at a time. `about` says with which settings it runs.

    The model is compiled when it is first needed, and for prompts and decoding with an output layer that sees the last
    position alone, as openvino_genai does: a prompt's other logits are of no use there and cost a fifth of the time.
    """

    def __init__(self, files: Path, threads: int) -> None:
        self._model_path = files / openvino_encode.MODEL
        self._core, self.about = openvino_encode.start(files, threads)
        self._tokenizer = openvino_encode.open_tokenizer(self._core, files)
        self._files = files
        self._request: Any = None
        self._last_only: bool | None = None
        self._past = 0
        self.stops = stop_tokens(files)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids. Without special tokens by openvino_genai, which changes the same tokenizer's graph for that."""
        if not special:
            found: list[int] = (
                self._generator_tokenizer.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
            )
            return found
        ids: list[int] = self._tokenizer([text])["input_ids"][0].tolist()
        return ids

    def chat(self) -> tuple[str, dict[str, str]]:
        """The tokenizer's own chat template ('' without one), and the texts of its special tokens."""
        own = self._generator_tokenizer
        tokens = {"bos_token": own.get_bos_token(), "eos_token": own.get_eos_token(), "pad_token": own.get_pad_token()}
        return own.get_original_chat_template(), tokens

    @cached_property
    def _generator_tokenizer(self) -> Any:
        import openvino_genai

        return openvino_genai.Tokenizer(self._files)

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        self._begin(last_only=False)
        return self._run(ids).copy()

    def prefill(self, ids: Sequence[int]) -> int:
        self._begin(last_only=True)
        return int(self._run(ids)[-1].argmax())

    def decode(self, token: int) -> int:
        return int(self._run([token])[-1].argmax())

    def scores(self) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._request.get_tensor("logits").data[0, -1].copy()
        return found

    def _begin(self, last_only: bool) -> None:
        if self._last_only is not last_only:
            self._request = None  # the other way's weights are freed before these are laid out
            model = self._core.read_model(self._model_path)
            self.about["logits_of_last_position_only"] = last_only and see_last_position(model)
            self._inputs = {name for port in model.inputs for name in port.get_names()}
            compiled = self._core.compile_model(model, self.about["device"], self.about["properties"])
            self._request, self._last_only = compiled.create_infer_request(), last_only
        self._request.reset_state()
        self._past = 0

    def _run(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits of the given ids (or of the last), after those that ran since the state was reset."""
        import numpy as np

        start, self._past = self._past, self._past + len(ids)
        feeds = {
            "input_ids": np.array([list(ids)], dtype=np.int64),
            "attention_mask": np.ones((1, self._past), dtype=np.int64),
            "position_ids": np.arange(start, self._past, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        self._request.infer({name: value for name, value in feeds.items() if name in self._inputs}, share_inputs=True)
        found: NDArray[np.float32] = self._request.get_tensor("logits").data[0]
        return found


def stop_tokens(files: Path) -> frozenset[int]:
    """The tokens at which openvino_genai ends an answer."""
    for name in ("generation_config.json", "config.json"):
        path = files / name
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        if found is not None:
            return frozenset(found if isinstance(found, list) else [found])
    return frozenset()


def see_last_position(model: Any) -> bool:
    """Cut the output layer's input to the last position. Where that layer is not found: False, and no change."""
    from openvino import opset13 as ops

    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() in AFTER_OUTPUT_LAYER:
        node = node.input_value(0).get_node()
    if node.get_type_name() != "MatMul" or node.input_value(0).get_partial_shape().rank.get_length() != 3:
        return False
    cut = ops.slice(node.input_value(0), [-1], [END], [1], [1])
    node.input(0).replace_source_output(cut.output(0))
    model.validate_nodes_and_infer_types()
    return True


class Encoder(openvino_encode.Encoder):
    """A sentence encoder: the one of the bundle's run.py, and a padded batch beside it.

    Its tokenizer adds special tokens and cuts a text to `cuts_at` tokens; both are built in.
    """

    encodes_bare = False

    def __init__(self, files: Path, threads: int) -> None:
        super().__init__(files, threads)
        self.cuts_at = self.about["max_tokens"]

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids, special tokens always included, cut to `cuts_at`."""
        return super().encode(text)

    def embed_together(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 (len(texts), width): all texts in one batch, padded to the longest of them by the tokenizer."""
        tokens = self.tokenizer(list(texts))
        feeds = {port.get_any_name(): tokens[port] for port in self.tokenizer.outputs}
        hidden = self.model({name: value for name, value in feeds.items() if name in self.inputs})[0]
        return padded_batch.pool(hidden, feeds["attention_mask"], self.about["pooling"])
