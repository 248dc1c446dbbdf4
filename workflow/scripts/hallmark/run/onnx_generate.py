"""Text from an ONNX language model's folder: `python run.py "a question"`. Stands alone; never samples.

Two kinds of folder: a graph with its key-value cache as inputs and outputs, run by onnxruntime, and one with a
genai_config.json, run by onnxruntime-genai. Needs that package, tokenizers, numpy, and jinja2 for the chat template.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

CACHE_ROOM = 512  # tokens that can follow a prompt; onnxruntime-genai reserves the cache for them
PROBE = ("The capital of France is", "Two  spaces\n\nand\ta tab", "naïve “quotes” 中文 🙂", "x = [1, 23, 456]  # why?")


def read_json(path: Path) -> Any:
    """The file's content; an empty dict where there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


class OrtDecoder:
    """A graph exported with its key-value cache, on ONNX Runtime. `threads`: CPU threads, 0 lets it choose."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        import onnxruntime as ort

        self.folder = folder
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = ort.InferenceSession(folder / "model.onnx", settings, providers=["CPUExecutionProvider"])
        self.value = ort.OrtValue.ortvalue_from_numpy
        self.inputs = {value.name: value for value in self.session.get_inputs()}
        self.outputs = [value.name for value in self.session.get_outputs()]
        self.cache: dict[str, Any] = {}
        self.length = 0
        self.stops = stop_tokens(folder)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The text's token ids, with the special tokens that the tokenizer adds unless `special` is false."""
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def chat(self) -> tuple[str, dict[str, str]]:
        return chat_template(self.folder)

    def text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids)))

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Scores of the next token after each position, float32 (len(ids), vocabulary), from an empty cache."""
        self._reset()
        return np.asarray(self._run(ids)[0], dtype=np.float32)

    def prefill(self, ids: Sequence[int]) -> int:
        """Run a prompt from an empty cache; the likeliest next token."""
        self._reset()
        return self._choose(ids)

    def decode(self, token: int) -> int:
        """Append one token; the likeliest next one."""
        return self._choose([token])

    def scores(self) -> np.ndarray:
        """What the last token was chosen by: float32 (vocabulary,)."""
        return np.asarray(self.row, dtype=np.float32)

    def _choose(self, ids: Sequence[int]) -> int:
        self.row = self._run(ids)[0, -1].copy()  # the other positions' logits are not kept
        return int(self.row.argmax())

    def _reset(self) -> None:
        self.length = 0
        for name, value in self.inputs.items():
            if name.startswith("past_key_values."):
                batch, *rest = value.shape
                shape = [
                    1 if isinstance(batch, str) else batch,
                    *(0 if isinstance(size, str) else size for size in rest),
                ]
                kind = np.float16 if value.type == "tensor(float16)" else np.float32
                self.cache[name] = self.value(np.zeros(shape, dtype=kind))

    def _run(self, ids: Sequence[int]) -> np.ndarray:
        """Logits of shape (1, len(ids), vocabulary). The cache stays in the runtime's own values: nothing is copied."""
        start, self.length = self.length, self.length + len(ids)
        arrays = {
            "input_ids": np.array([ids], dtype=np.int64),
            "attention_mask": np.ones((1, self.length), dtype=np.int64),
            "position_ids": np.arange(start, self.length, dtype=np.int64)[None],
        }
        feeds = {name: self.value(array) for name, array in arrays.items() if name in self.inputs}
        values = dict(
            zip(self.outputs, self.session.run_with_ort_values(self.outputs, feeds | self.cache), strict=True)
        )
        self.cache = {name: values[name.replace("past_key_values", "present")] for name in self.cache}
        logits: np.ndarray = values["logits"].numpy()
        return logits


class GenaiDecoder:
    """A folder of onnxruntime-genai's model builder, on onnxruntime-genai. `threads`: CPU threads, 0 lets it choose."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        import onnxruntime_genai as og

        settings = {"inter_op_num_threads": 1, "session.intra_op.allow_spinning": "0"}
        settings |= {"intra_op_num_threads": threads} if threads else {}
        config = og.Config(str(folder))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": settings}}}))
        self.og = og
        self.model = og.Model(config)
        self.folder = folder
        about = read_json(folder / "genai_config.json")["model"]
        self.context = int(about["context_length"])
        self.window = int(about["decoder"].get("sliding_window", {}).get("window_size", 0))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.stops = stop_tokens(folder)
        self.own = self._own_tokenizer()
        self.generator: Any = None

    def _own_tokenizer(self) -> Any:
        """The runtime's own tokenizer, or None where it reads tokenizer.json otherwise than the tokenizers library."""
        try:
            own = self.og.Tokenizer(self.model)
            agrees = all([int(i) for i in own.encode(text)] == self.encode_by_file(text) for text in PROBE)
        except RuntimeError:  # a tokenizer class or a pattern that it does not know
            agrees = False
        if not agrees:
            print("onnxruntime-genai's own tokenizer gives other ids; using tokenizer.json directly", file=sys.stderr)
        return own if agrees else None

    def encode_by_file(self, text: str, special: bool = True) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The text's token ids, with the special tokens that the tokenizer adds unless `special` is false."""
        if self.own is None or not special:
            return self.encode_by_file(text, special)
        return [int(token) for token in self.own.encode(text)]

    def chat(self) -> tuple[str, dict[str, str]]:
        return chat_template(self.folder)

    def text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids)))

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Scores of the next token after each position, float32 (len(ids), vocabulary), from an empty cache."""
        self._feed(ids, room=1)
        return np.array(self.generator.get_output("logits")[0], dtype=np.float32)

    def prefill(self, ids: Sequence[int]) -> int:
        """Run a prompt from an empty cache; the likeliest next token."""
        self._feed(ids, room=CACHE_ROOM)
        return int(self.generator.get_logits().argmax())

    def decode(self, token: int) -> int:
        """Append one token; the likeliest next one."""
        self.generator.append_tokens([token])
        return int(self.generator.get_logits().argmax())

    def scores(self) -> np.ndarray:
        """What the last token was chosen by: float32 (vocabulary,)."""
        return np.array(self.generator.get_logits(), dtype=np.float32).reshape(-1)

    def _feed(self, ids: Sequence[int], room: int) -> None:
        self.generator = None  # its cache is freed before the next one is reserved
        parameters = self.og.GeneratorParams(self.model)
        length = max(len(ids) + room, self.window)  # the runtime refuses a cache that is smaller than a sliding window
        parameters.set_search_options(do_sample=False, max_length=min(self.context, length))
        self.generator = self.og.Generator(self.model, parameters)
        self.generator.append_tokens(list(ids))


def open_decoder(folder: Path, threads: int = 0) -> OrtDecoder | GenaiDecoder:
    """The decoder that the folder is for."""
    return (GenaiDecoder if (folder / "genai_config.json").is_file() else OrtDecoder)(folder, threads)


def chat_template(folder: Path) -> tuple[str, dict[str, str]]:
    """The model's own chat template, '' if it has none, and the special tokens' texts by the names that it uses."""
    file = folder / "chat_template.jinja"
    config = read_json(folder / "tokenizer_config.json")
    template = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    tokens = {name: value.get("content", "") if isinstance(value, dict) else value or "" for name in names
              for value in [config.get(name)]}  # fmt: skip
    return template if isinstance(template, str) else "", tokens


def chat_prompt(folder: Path, text: str) -> str | None:
    """The text as a user's turn in the model's own chat template, None for a model without one."""
    template, tokens = chat_template(folder)
    if not template:
        return None
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": "user", "content": text}]
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **tokens)


def stop_tokens(folder: Path) -> set[int]:
    """The ids that end an answer, from whichever of the folder's configuration files names them."""
    found = [read_json(folder / name).get("eos_token_id") for name in ("config.json", "generation_config.json")]
    found.append(read_json(folder / "genai_config.json").get("model", {}).get("eos_token_id"))
    return {token for ids in found if ids is not None for token in (ids if isinstance(ids, list) else [ids])}


def generate(decoder: OrtDecoder | GenaiDecoder, ids: Sequence[int], limit: int) -> Iterator[int]:
    """The likeliest continuation of `ids`, token by token, up to a stop token or `limit` tokens."""
    token = decoder.prefill(ids)
    for left in range(limit, 0, -1):
        if token in decoder.stops:
            return
        yield token
        if left > 1:
            token = decoder.decode(token)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Answer a text with the language model in this folder.")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=64, choices=range(1, CACHE_ROOM + 1), metavar=f"1..{CACHE_ROOM}")
    parser.add_argument("--plain", action="store_true", help="continue the text as it is, without the chat template")
    args = parser.parse_args(argv)
    folder = Path(__file__).resolve().parent
    decoder = open_decoder(folder)
    prompt = None if args.plain else chat_prompt(folder, args.text)
    ids = decoder.encode(args.text) if prompt is None else decoder.encode(prompt, special=False)
    print(decoder.text(list(generate(decoder, ids, args.tokens))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
