"""Runs a GGUF file with llama.cpp's library through its binding, one input at a time. Measures nothing, writes nothing.

For the toolchain `llama_cpp`. Each input starts from an empty cache, so that a repeated one costs as much as a new one.
What llama.cpp would choose by itself (key-value cache in float16, batches, flash attention) is left as it is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark.gguf_programs import llama_cpp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

CONTEXT = 2048  # tokens, unless the options hold `context`
TOGETHER = 4  # texts that an encoder takes in one batch
LOGITS_AT_ONCE = 512  # positions; bounds the memory of their logits
WARNING, ERROR = 3, 4  # ggml_log_level in ggml.h
NO_POOLING, RANK_POOLING = 0, 4


@cache
def library() -> Any:
    """The binding's low-level module (`llama_cpp.llama_cpp`), with the backends loaded that fit this processor."""
    programs = llama_cpp() / "bin"
    suffix = "dylib" if sys.platform == "darwin" else "so"
    backends = ctypes.CDLL(str(programs / f"libggml.{suffix}"))
    backends.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    backends.ggml_backend_load_all_from_path.restype = None
    os.environ["LLAMA_CPP_LIB_PATH"] = str(programs)  # where the binding looks for the library when it is imported
    import llama_cpp.llama_cpp as binding

    binding.llama_log_set(_log_callback(binding), None)
    backends.ggml_backend_load_all_from_path(bytes(programs))
    binding.llama_backend_init()
    return binding


@cache  # the library keeps a bare pointer to it
def _log_callback(binding: Any) -> Any:
    """Passes warnings and errors on to standard error, and drops the two hundred lines about each model."""

    def write(level: int, text: bytes, _: object) -> None:
        if level in (WARNING, ERROR):
            print(text.decode("utf-8", "replace"), end="", file=sys.stderr, flush=True)

    return binding.llama_log_callback(write)


class Model:
    """A loaded file with a context to run it in. `close` frees both; nothing may be called after it."""

    def __init__(self, path: Path, options: Mapping[str, Any], encoder: bool) -> None:
        self.library = library()
        self._model = self.library.llama_model_load_from_file(bytes(path), self.library.llama_model_default_params())
        if not self._model:
            raise ValueError(f"{path}: llama.cpp cannot load this file, its reason is in the log above")
        self.vocabulary = self.library.llama_model_get_vocab(self._model)
        self._context = self._open_context(options, encoder)
        if not self._context:
            self.library.llama_model_free(self._model)
            raise ValueError(f"{path}: llama.cpp cannot make a context for this file, its reason is in the log above")
        self.longest = int(self.library.llama_n_ctx(self._context))
        self.about = {
            "system": self.library.llama_print_system_info().decode(),
            "context": self.longest,
            "threads": int(options["threads"]),
        }

    def _open_context(self, options: Mapping[str, Any], encoder: bool) -> Any:
        settings = self.library.llama_context_default_params()
        settings.n_ctx = max(int(options.get("context", CONTEXT)), int(options.get("long_tokens", 0)))
        settings.n_threads = settings.n_threads_batch = int(options["threads"])
        settings.no_perf = True
        if encoder:  # which sees its whole input at once, and has no position beyond those it was trained with
            settings.n_ctx = min(settings.n_ctx, self.library.llama_model_n_ctx_train(self._model))
            settings.n_batch = settings.n_ubatch = settings.n_ctx
            settings.n_seq_max, settings.kv_unified = TOGETHER, True
            settings.embeddings = True
        return self.library.llama_init_from_model(self._model, settings)

    def close(self) -> None:
        self.library.llama_free(self._context)
        self.library.llama_model_free(self._model)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids, with those that the file puts around a text unless `special` is false; ones in it are found."""
        data = text.encode("utf-8")
        size = len(data) + 16
        ids = (self.library.llama_token * size)()
        count = self.library.llama_tokenize(self.vocabulary, data, len(data), ids, size, special, True)
        if count < 0:  # too small: it says what it needs
            ids = (self.library.llama_token * -count)()
            count = self.library.llama_tokenize(self.vocabulary, data, len(data), ids, -count, special, True)
        return list(ids[:count])

    def chat(self) -> tuple[str, dict[str, str]]:
        """The file's chat template ('' without one), and the texts of its first and last token."""
        template = self.library.llama_model_chat_template(self._model, None)
        ends = {
            "bos_token": self.library.llama_vocab_bos(self.vocabulary),
            "eos_token": self.library.llama_vocab_eos(self.vocabulary),
        }
        texts = {
            name: self.library.llama_vocab_get_text(self.vocabulary, number).decode("utf-8")
            for name, number in ends.items()
            if number >= 0
        }
        return (template or b"").decode("utf-8"), texts

    def clear(self) -> None:
        memory = self.library.llama_get_memory(self._context)
        if memory:  # an encoder has none
            self.library.llama_memory_clear(memory, True)

    def run(self, ids: Sequence[int], every_position: bool) -> None:
        """Run tokens after those already run. Outputs are there for every position, or for the last alone."""
        tokens = (self.library.llama_token * len(ids))(*ids)
        batch = self.library.llama_batch_get_one(tokens, len(ids))
        if every_position:
            wanted = (ctypes.c_int8 * len(ids))(*[1] * len(ids))
            batch.logits = ctypes.cast(wanted, ctypes.POINTER(ctypes.c_int8))
        code = self.library.llama_decode(self._context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode: code {code} for {len(ids)} tokens in a context of {self.longest}")

    @property
    def context(self) -> Any:
        return self._context


class LanguageModel(Model):
    """The runner of `causal-lm`."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        super().__init__(path, options, encoder=False)
        self.width = int(self.library.llama_vocab_n_tokens(self.vocabulary))
        self._batch = int(self.library.llama_n_batch(self.context))

    def logits(self, ids: Sequence[int]) -> Floats:
        """float32 (len(ids), vocabulary): the logits after each token."""
        import numpy as np

        self._check_length(ids)
        found = np.empty((len(ids), self.width), np.float32)
        self.clear()
        for first in range(0, len(ids), LOGITS_AT_ONCE):
            piece = ids[first : first + LOGITS_AT_ONCE]
            self.run(piece, every_position=True)
            pointer = self.library.llama_get_logits(self.context)
            found[first : first + len(piece)] = np.ctypeslib.as_array(pointer, (len(piece), self.width))
        return found

    def prefill(self, ids: Sequence[int]) -> int:
        """Run a prompt from an empty cache; the most likely next token."""
        self._check_length(ids)
        self.clear()
        for first in range(0, len(ids), self._batch):
            self.run(ids[first : first + self._batch], every_position=False)
        return self._most_likely()

    def decode(self, token: int) -> int:
        """Run one more token; the most likely next one."""
        self.run([token], every_position=False)
        return self._most_likely()

    def scores(self) -> Floats:
        """float32 (vocabulary,): the logits that the last `prefill` or `decode` chose from."""
        return self._last_row().copy()

    @cached_property
    def stops(self) -> frozenset[int]:
        """The tokens at which llama.cpp ends an answer."""
        is_end = self.library.llama_vocab_is_eog
        return frozenset(token for token in range(self.width) if is_end(self.vocabulary, token))

    def _most_likely(self) -> int:
        return int(self._last_row().argmax())

    def _last_row(self) -> Floats:
        import numpy as np

        return np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.context, -1), (self.width,))

    def _check_length(self, ids: Sequence[int]) -> None:
        if not 0 < len(ids) <= self.longest:
            raise ValueError(f"{len(ids)} tokens for a context of {self.longest}: set the option `context` higher")


class Encoder(Model):
    """The runner of `sentence-similarity`, with the pooling that the file names. Inputs are cut to the context."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        super().__init__(path, options, encoder=True)
        self.width = int(self.library.llama_model_n_embd_out(self._model))
        if self.library.llama_pooling_type(self.context) in (NO_POOLING, RANK_POOLING):
            self.close()
            raise ValueError(f"{path}: names no pooling that gives an embedding (*.pooling_type)")

    def embed(self, texts: Sequence[str]) -> Floats:
        """float32 (len(texts), width), each row of unit length."""
        import numpy as np

        found = np.empty((len(texts), self.width), np.float32)
        for row, text in zip(found, texts, strict=True):
            self.clear()
            self.run(self._cut(text), every_position=True)
            row[:] = self._vector(0)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found

    def embed_together(self, texts: Sequence[str]) -> Floats:
        """float32 (len(texts), width) of up to TOGETHER texts, as sequences of one batch; llama.cpp does not pad."""
        import numpy as np

        sequences = [self._cut(text) for text in texts]
        places = [(token, place, number) for number, ids in enumerate(sequences) for place, token in enumerate(ids)]
        batch = self.library.llama_batch_init(len(places), 0, 1)
        batch.n_tokens = len(places)
        for row, (token, place, number) in enumerate(places):
            batch.token[row], batch.pos[row], batch.n_seq_id[row] = token, place, 1
            batch.seq_id[row][0], batch.logits[row] = number, 1
        self.clear()
        code = self.library.llama_decode(self.context, batch)
        self.library.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama_decode: code {code} for {len(places)} tokens of {len(texts)} texts")
        found = np.stack([self._vector(number) for number in range(len(texts))])
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found

    def _cut(self, text: str) -> list[int]:
        ids = self.encode(text)
        return ids if len(ids) <= self.longest else [*ids[: self.longest - 1], ids[-1]]  # the last one is the end token

    def _vector(self, sequence: int) -> Floats:
        import numpy as np

        pointer = self.library.llama_get_embeddings_seq(self.context, sequence)
        return np.ctypeslib.as_array(pointer, (self.width,)).copy()
