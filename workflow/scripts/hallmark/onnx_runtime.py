"""Runs ONNX encoders for measuring: the bundle's program, and a padded batch beside it. Writes nothing.

For the toolchains `onnx` and `onnx_genai`. Language models are run by the bundle's program as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hallmark import padded_batch
from hallmark.run import onnx_encode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Encoder(onnx_encode.Encoder):
    """The encoder of the bundle's run.py. Its vectors have unit length, whatever the model's modules say."""

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__(folder, threads)
        self.unit_length = True  # the task compares directions

    def embed_together(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 (len(texts), width): all texts in one batch, padded to the longest of them."""
        import numpy as np

        self.tokenizer.enable_truncation(self.longest)
        self.tokenizer.enable_padding()
        encoded = self.tokenizer.encode_batch(list(texts))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        feeds = {
            "input_ids": np.array([tokens.ids for tokens in encoded], np.int64),
            "attention_mask": np.array([tokens.attention_mask for tokens in encoded], np.int64),
            "token_type_ids": np.array([tokens.type_ids for tokens in encoded], np.int64),
        }
        hidden = self.session.run(None, {name: feeds[name] for name in self.inputs})[0].astype(np.float32)
        return padded_batch.pool(hidden, feeds["attention_mask"], self.pooling)
