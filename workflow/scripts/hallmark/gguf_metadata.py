"""What a GGUF file's metadata says against its source: vocabulary, special tokens, template, rope, sizes. No weights.

Where the file says nothing, what llama.cpp assumes then counts as said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import sentence_modules, source_settings, source_tokens
from hallmark.gguf_file import GgufFile
from hallmark.source_tokens import Tokens

SPACE = "\u2581"  # how SentencePiece, and llama.cpp for BERT, write a space
COMPARED_VOCABULARIES = ("gpt2", "llama", "bert")  # `tokenizer.ggml.model`; others renumber or rewrite their tokens
KEYS = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "pad": "padding",
    "cls": "cls",
    "sep": "seperator",
    "mask": "mask",
}
ENDS = ("eos", "eot", "eom")  # keys of tokens that end an answer
ASSUMED_IDS = {"llama": {"bos": 1, "eos": 2, "unk": 0}}
ASSUMED_ADDS: Mapping[str, Mapping[str, bool]] = {
    "llama": {"bos": True, "eos": False},
    "gpt2": {"bos": False, "eos": False},
    "bert": {"bos": True, "eos": False},
}
# Texts that llama.cpp takes for an end whatever the file says (llama-vocab.cpp, special_eog_ids).
KNOWN_ENDS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
))  # fmt: skip
SHAPE_KEYS = {
    "context": "context_length", "layers": "block_count", "hidden": "embedding_length",
    "intermediate": "feed_forward_length", "heads": "attention.head_count", "kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length", "experts": "expert_count", "experts_used": "expert_used_count",
    "sliding_window": "attention.sliding_window",
}  # fmt: skip
EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
ROPE_KEYS = {
    "base": "rope.freq_base", "local_base": "rope.freq_base_swa", "type": "rope.scaling.type",
    "factor": "rope.scaling.factor", "original_context": "rope.scaling.original_context_length",
}  # fmt: skip
POOLINGS = {1: "mean", 2: "cls", 3: "last"}  # llama_pooling_type
ASSUMED_BASE = 10000.0
# Kinds of scaling that are a table of factors in a tensor, and not a key.
TABLES = {"llama3": "rope_freqs.weight", "longrope": "rope_factors_long.weight", "su": "rope_factors_long.weight"}


def vocabulary(file: GgufFile, source: Tokens) -> list[str]:
    """The tokens that are not the source's: another text, missing, or beyond its last and no padding; other merges."""
    kind, texts = str(file.metadata.get("tokenizer.ggml.model")), file.metadata.get("tokenizer.ggml.tokens", ())
    if kind not in COMPARED_VOCABULARIES:
        return []
    found = [
        f"{number}: {text!r}, the source has {source.texts[number]!r}"
        for number, text in enumerate(texts)
        if number in source.texts and not _is_same(text, source.texts[number], number, kind, source)
    ]
    found += [f"{number}: {text!r} is missing" for number, text in source.texts.items() if number >= len(texts)]
    if kind == "gpt2":
        found += source_tokens.merge_differences(tuple(file.metadata.get("tokenizer.ggml.merges", ())), source.merges)
    unknown = (number for number in range(len(texts)) if number not in source.texts)
    return found + [f"{n}: {texts[n]!r} is not in the source" for n in unknown if not _is_padding(texts[n])]


def _is_same(text: str, expected: str, number: int, kind: str, source: Tokens) -> bool:
    if kind == "bert" and number not in source.special:
        expected = expected[2:] if expected.startswith("##") else SPACE + expected
    if text == expected:
        return True
    # The converter decodes added tokens, which turns SentencePiece's visible spaces into spaces.
    return number in source.added and text.replace(SPACE, " ").strip() == expected.replace(SPACE, " ").strip()


def _is_padding(text: str) -> bool:
    return text.startswith("[PAD") and text.endswith("]")


def special_tokens(file: GgufFile, source: Tokens) -> list[str]:
    """Special tokens that are others than the source's, flags that differ, and stop tokens that are lost."""
    metadata, kind = file.metadata, str(file.metadata.get("tokenizer.ggml.model"))
    stated = {role: metadata.get(f"tokenizer.ggml.{key}_token_id") for role, key in KEYS.items()}
    found = []
    for role, allowed in source.roles.items():
        number = stated[role]
        if number is None:
            number = ASSUMED_IDS.get(kind, {}).get(role)
        if number not in allowed and not (number is None and role not in ("bos", "eos")):
            found.append(f"{role}: {number}, the source has {sorted(allowed)}")
    for role, expected in source.adds.items():
        adds = metadata.get(f"tokenizer.ggml.add_{role}_token", ASSUMED_ADDS.get(kind, {}).get(role))
        if None not in (adds, expected) and adds != expected and not _is_bert_end(kind, role):
            found.append(f"add_{role}_token: {adds}, the source has {expected}")
    return found + [f"stop token {number} is lost" for number in sorted(source.stops - _ends(file))]


def _is_bert_end(kind: str, role: str) -> bool:
    """llama.cpp ends what BERT reads with the separator, whatever `add_eos_token` says."""
    return kind == "bert" and role == "eos"


def _ends(file: GgufFile) -> set[int]:
    """The tokens at which llama.cpp stops."""
    texts = file.metadata.get("tokenizer.ggml.tokens", ())
    known = {number for number, text in enumerate(texts) if text in KNOWN_ENDS}
    return known | {file.metadata.get(f"tokenizer.ggml.{key}_token_id", -1) for key in ENDS}


def template(file: GgufFile) -> str:
    """The chat template, '' where there is none."""
    return str(file.metadata.get("tokenizer.chat_template", ""))


def shape(file: GgufFile, config: Mapping[str, Any]) -> list[str]:
    """Sizes that are stated and are others than the source's."""
    stated = {name: file.of_architecture(key) for name, key in SHAPE_KEYS.items()}
    epsilon = next((value for key in EPSILONS if (value := file.of_architecture(key)) is not None), None)
    stated |= {"norm_epsilon": epsilon}
    told = {name: value for name, value in stated.items() if value is not None and not isinstance(value, list)}
    return source_settings.differences(source_settings.shape(config), told)


def pooling(file: GgufFile, source: Path) -> list[str]:
    """An encoder's pooling, where it is not that of the checkpoint in the folder `source`."""
    stated = file.of_architecture("pooling_type")
    if stated is None:
        return []
    told, wanted = POOLINGS.get(stated, f"type {stated}"), sentence_modules.pooling(source)
    return [] if told == wanted else [f"pooling: {told}, the source has {wanted}"]


def rope(file: GgufFile, config: Mapping[str, Any]) -> list[str]:
    """Rotary settings that are others than the source's, or were left out."""
    expected = source_settings.rope(config)
    if not expected:
        return []
    stated = {name: file.of_architecture(key) for name, key in ROPE_KEYS.items()}
    told = {name: value for name, value in stated.items() if value is not None}
    told.setdefault("base", ASSUMED_BASE)
    told["type"] = {"none": "default"}.get(told.get("type", "default"), told.get("type", "default"))
    table = TABLES.get(expected["type"])
    if table:  # the table stands for the type and its numbers
        missing = (
            [] if table in file.by_name else [f"type: {expected['type']} needs the tensor {table}, which is missing"]
        )
        return missing + source_settings.differences({"base": expected["base"]}, told)
    if expected["type"] == "default":
        expected = {name: value for name, value in expected.items() if name not in ("factor", "original_context")}
    if "local_base" not in told:  # llama.cpp has it built in for the architectures that need one
        expected.pop("local_base", None)
    lost = [
        f"{name}: not stated, the source has {expected[name]}" for name in ("factor",) if name in expected.keys() - told
    ]
    return lost + source_settings.differences(expected, told)
