"""Defects of the small files beside an ONNX or OpenVINO graph: tokenizer, configuration, template. Judges nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.mutations.catalogue import Mutation
from tests.mutations.places import edit, replace

LANGUAGE = ("smollm2/onnx/int8", "smollm2/openvino/int8")
ENCODER = ("minilm/onnx/fp32", "minilm/openvino/int8")
BOTH = ("smollm2/onnx/int8", "smollm2/openvino/int8", *ENCODER)
SETTINGS, SPECIAL, VOCABULARY = ("config_mismatch",), ("special_token_mismatch",), ("vocabulary_mismatch",)


def setting(name: str, **values: Any) -> Any:
    """Other values in one of the folder's JSON files."""
    return lambda files: edit(files / name, lambda content: content.update(values))


def swap_tokens(files: Path) -> None:
    def change(content: Any) -> None:
        words = content["model"]["vocab"]
        first, second = list(words)[1000:1002]
        words[first], words[second] = words[second], words[first]

    edit(files / "tokenizer.json", change)


def shift_tokens(files: Path) -> None:
    """Ids are one too high, as where a token was put before the others."""

    def change(content: Any) -> None:
        words = content["model"]["vocab"]
        content["model"]["vocab"] = {text: number + 1 for text, number in words.items()}

    edit(files / "tokenizer.json", change)


def lose_special(files: Path) -> None:
    """Special tokens are read as text."""
    edit(files / "tokenizer.json", lambda content: content.update(added_tokens=[]))


def drop_last_words(files: Path) -> None:
    """The tokenizer of the model before it was given more tokens."""

    def change(content: Any) -> None:
        words = sorted(content["model"]["vocab"].items(), key=lambda item: item[1])
        content["model"]["vocab"] = dict(words[:-100])

    edit(files / "tokenizer.json", change)


def lose_stop(files: Path) -> None:
    """Whatever states what ends an answer states another token."""
    for name in ("generation_config.json", "config.json"):
        edit(files / name, lambda content: content.update(eos_token_id=0))
    edit(files / "tokenizer_config.json", lambda content: content.update(eos_token="<|endoftext|>"))
    if (files / "genai_config.json").is_file():
        edit(files / "genai_config.json", lambda content: content["model"].update(eos_token_id=0))


def add_bos(files: Path) -> None:
    def change(content: Any) -> None:
        single = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        special = {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}
        content["post_processor"] = {
            "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special,
        }  # fmt: skip

    edit(files / "tokenizer.json", change)


def lose_bos(files: Path) -> None:
    edit(files / "tokenizer.json", lambda content: content.update(post_processor=None))


def change_template(files: Path) -> None:
    replace(files / "chat_template.jinja", b"<|im_start|>", b"<|im_begin|>")


def lose_template(files: Path) -> None:
    (files / "chat_template.jinja").unlink()


MUTATIONS = (
    Mutation("two tokens swapped", "files", BOTH, VOCABULARY, swap_tokens),
    Mutation("token ids off by one", "files", BOTH, VOCABULARY, shift_tokens),
    Mutation("special tokens read as text", "files", BOTH, (*VOCABULARY, *SPECIAL), lose_special),
    Mutation("a stale tokenizer, before tokens were added", "files", BOTH, VOCABULARY, drop_last_words),
    Mutation("stop token lost", "files", LANGUAGE, SPECIAL, lose_stop, "abetlen/llama-cpp-python#1360"),
    Mutation("BOS added", "files", LANGUAGE, SPECIAL, add_bos, "ggml-org/llama.cpp#3966"),
    Mutation("BOS lost", "files", ENCODER, SPECIAL, lose_bos, "ggml-org/llama.cpp#21500"),
    Mutation("other chat template", "files", LANGUAGE[:1], ("chat_template_mismatch",), change_template,
             "ggml-org/llama.cpp#7062"),
    Mutation("chat template lost", "files", LANGUAGE[:1], ("chat_template_mismatch",), lose_template,
             "huggingface/transformers#32908"),
    Mutation("rope base is the default's", "files", LANGUAGE, SETTINGS, setting("config.json", rope_theta=10000.0)),
    Mutation("norm epsilon of another model", "files", LANGUAGE, SETTINGS,
             setting("config.json", rms_norm_eps=1e-6), "ggml-org/llama.cpp#9310"),
    Mutation("wrong head count", "files", BOTH, SETTINGS, setting("config.json", num_attention_heads=6)),
    Mutation("context length of another model", "files", BOTH, SETTINGS,
             setting("config.json", max_position_embeddings=256)),
    Mutation("tied weights called untied", "files", LANGUAGE, SETTINGS,
             setting("config.json", tie_word_embeddings=False)),
    Mutation("a file of settings of another model", "files", BOTH, SETTINGS,
             setting("config.json", hidden_size=768, num_hidden_layers=12)),
)  # fmt: skip
