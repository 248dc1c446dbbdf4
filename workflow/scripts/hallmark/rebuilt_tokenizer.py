"""Write the tokenizer files of a checkpoint from the vocabulary in a GGUF, and prove them. It reads no weights.

Two kinds: byte-level BPE (`tokenizer.ggml.model` = gpt2) from tokens and merges, and SentencePiece BPE (llama) from
pieces and scores, where a tokenizer.model is written too because llama.cpp's converter wants it. What a GGUF does not
say, how text is split before BPE, is known for the `tokenizer.ggml.pre` names in SPLITTERS and refused for others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6  # gguf.TokenType
SPACE = "\u2581"  # SentencePiece's visible space
SPLITTERS: Mapping[str, list[dict[str, Any]]] = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
SAMPLES = (
    "The quick brown fox, 1234 times: it's (not) done!",
    "  leading, double  spaces,\ttabs,\n\n\nlines \n and trailing   ",
    "def f(x):\n    return {'a': [x ** 2, 0x1F]}\n\n\n",
    "naïve café — 漢字とかな Русский 한국어 العربية \U0001f680\U0001f9d1\u200d\U0001f680",
    " " * 70 + "x" + "\n" * 45 + "\t" * 40 + "end",
    "<b>markup</b> &amp; 3.14159e-10 \x00\x07 \ufffd",
    "",
)


class WrongTokenizer(Exception):
    """The rebuilt tokenizer does not agree with the GGUF. The text names the first difference."""


def write(fields: Mapping[str, Any], out: Path, longest: int) -> dict[str, Any]:
    """Write tokenizer.json, tokenizer_config.json and, where there is one, chat_template.jinja into `out`.

    `fields` are the GGUF's keys with their values, `longest` the context length. Returns {"kind", "pre", "tokens",
    "merges"}. Raises WrongTokenizer when a check of `prove` fails or the GGUF's kind of tokenizer is not known.
    """
    kind, pre = fields["tokenizer.ggml.model"], fields.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and pre in SPLITTERS:
        content = _byte_level(fields, pre)
    elif kind == "llama" and not fields.get("tokenizer.ggml.add_space_prefix", True):
        content = _sentencepiece(fields)
        _write_sentencepiece(fields, out / "tokenizer.model")
    else:
        known = ", ".join(f"gpt2/{name}" for name in SPLITTERS)
        raise WrongTokenizer(
            f"no way to rebuild a {kind}/{pre} tokenizer; have {known}, and llama without space prefix"
        )
    (out / "tokenizer.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    settings = _settings(fields, content["added_tokens"], longest)
    (out / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    if template := fields.get("tokenizer.chat_template"):
        (out / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
    prove(fields, out)
    return {"kind": kind, "pre": pre, "tokens": len(fields["tokenizer.ggml.tokens"]),
            "merges": len(content["model"]["merges"])}  # fmt: skip


def _token(fields: Mapping[str, Any], role: str) -> str | None:
    number = fields.get(f"tokenizer.ggml.{ROLES[role]}_token_id")
    return None if number is None else fields["tokenizer.ggml.tokens"][number]


def _added(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tokens matched in the raw text before anything else: control tokens and user-defined ones, as they stand."""
    kinds = zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], strict=True)
    return [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": kind == CONTROL}
        for number, (text, kind) in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED)
    ]  # fmt: skip


def _byte_level(fields: Mapping[str, Any], pre: str) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return _tokenizer(
        fields,
        model={"byte_fallback": False, "fuse_unk": False, "unk_token": None},
        merges=[merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        normalizer=None,
        splitter={"type": "Sequence", "pretokenizers": SPLITTERS[pre]},
        decoder=byte_level,
    )


def _sentencepiece(fields: Mapping[str, Any]) -> dict[str, Any]:
    visible = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return _tokenizer(
        fields,
        model={"byte_fallback": True, "fuse_unk": True, "unk_token": _token(fields, "unk")},
        merges=merges_of_pieces(fields),
        normalizer=visible,
        splitter=None,
        decoder={"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]},
    )


def merges_of_pieces(fields: Mapping[str, Any]) -> list[list[str]]:
    """Merges that act like SentencePiece BPE: each way to make a piece from two others, the best-scored piece first."""
    pieces = fields["tokenizer.ggml.tokens"]
    kinds, scores = fields["tokenizer.ggml.token_type"], fields["tokenizer.ggml.scores"]
    ranks = {piece: number for number, piece in enumerate(pieces) if kinds[number] == NORMAL}
    found = []
    for piece, number in ranks.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ranks and right in ranks:
                found.append((-scores[number], number, ranks[left], ranks[right], left, right))
    return [[left, right] for *_, left, right in sorted(found)]


def _tokenizer(
    fields: Mapping[str, Any],
    model: dict[str, Any],
    merges: list[list[str]],
    normalizer: dict[str, Any] | None,
    splitter: dict[str, Any] | None,
    decoder: dict[str, Any],
) -> dict[str, Any]:
    common = {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    vocabulary = {token: number for number, token in enumerate(fields["tokenizer.ggml.tokens"])}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(fields),
        "normalizer": normalizer,
        "pre_tokenizer": splitter,
        "post_processor": _start_token(fields),
        "decoder": decoder,
        "model": {**common, "ignore_merges": False, **model, "vocab": vocabulary, "merges": merges},
    }


def _start_token(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The step that puts the BOS token in front, where the GGUF says so."""
    if not fields.get("tokenizer.ggml.add_bos_token", fields["tokenizer.ggml.model"] == "llama"):
        return None
    bos = _token(fields, "bos")
    special = {"SpecialToken": {"id": bos, "type_id": 0}}
    text, pair = ({"Sequence": {"id": name, "type_id": kind}} for name, kind in (("A", 0), ("B", 1)))
    second = {"SpecialToken": {"id": bos, "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [special, text],
        "pair": [special, text, second, pair],
        "special_tokens": {bos: {"id": bos, "ids": [fields["tokenizer.ggml.bos_token_id"]], "tokens": [bos]}},
    }


def _settings(fields: Mapping[str, Any], added: list[dict[str, Any]], longest: int) -> dict[str, Any]:
    """tokenizer_config.json. The class is the one that takes tokenizer.json as it is, in transformers 4 and 5."""
    decoder = {str(token["id"]): {key: token[key] for key in token if key != "id"} for token in added}
    roles = {f"{role}_token": token for role in ROLES if (token := _token(fields, role)) is not None}
    starts = {"add_bos_token": True, "add_eos_token": False} if _start_token(fields) else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": bool(fields.get("tokenizer.ggml.add_space_prefix", False)),
        "added_tokens_decoder": decoder,
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
        **roles,
        **starts,
    }


def _write_sentencepiece(fields: Mapping[str, Any], path: Path) -> None:
    """tokenizer.model with the GGUF's pieces, scores and kinds; spaces inside pieces are written as SPACE."""
    from sentencepiece import sentencepiece_model_pb2 as proto

    kinds = proto.ModelProto.SentencePiece
    names = {NORMAL: kinds.NORMAL, CONTROL: kinds.CONTROL, USER_DEFINED: kinds.USER_DEFINED, BYTE: kinds.BYTE}
    unknown = fields["tokenizer.ggml.unknown_token_id"]
    columns = (fields[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    model = proto.ModelProto()
    for number, (text, score, kind) in enumerate(zip(*columns, strict=True)):
        written = kinds.UNKNOWN if number == unknown else names[kind]
        model.pieces.add(piece=text.replace(" ", SPACE), score=score, type=written)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type = proto.TrainerSpec.BPE
    trainer.vocab_size = len(model.pieces)
    trainer.byte_fallback = True
    for role in ROLES:
        setattr(trainer, f"{role}_id", fields.get(f"tokenizer.ggml.{ROLES[role]}_token_id", -1))
        setattr(trainer, f"{role}_piece", _token(fields, role) or "")
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = False
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    path.write_bytes(model.SerializeToString(deterministic=True))


def prove(fields: Mapping[str, Any], folder: Path) -> None:
    """Raise WrongTokenizer unless the written tokenizer has the GGUF's ids and gives SAMPLES back unharmed.

    With a tokenizer.model, SentencePiece must also cut SAMPLES into the same ids.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    wanted = {token: number for number, token in enumerate(fields["tokenizer.ggml.tokens"])}
    have = tokenizer.get_vocab(with_added_tokens=True)
    if have != wanted:
        wrong = sorted(token for token in wanted.keys() | have.keys() if wanted.get(token) != have.get(token))
        first = wrong[0]
        raise WrongTokenizer(
            f"{len(wrong)} tokens differ; {first!r} is {have.get(first)}, should be {wanted.get(first)}"
        )
    second = _reference(folder / "tokenizer.model")
    for text in SAMPLES:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if back != text:
            raise WrongTokenizer(f"{text!r} comes back as {back!r}")
        if second is not None and second(text) != ids:
            raise WrongTokenizer(f"{text!r} becomes {ids}, and {second(text)} by SentencePiece")
    _prove_start(fields, tokenizer)


def _reference(path: Path) -> Any:
    if not path.exists():
        return None
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=str(path)).encode


def _prove_start(fields: Mapping[str, Any], tokenizer: Any) -> None:
    start = [fields["tokenizer.ggml.bos_token_id"]] if _start_token(fields) else []
    bare, full = (tokenizer.encode("x", add_special_tokens=flag).ids for flag in (False, True))
    if full != start + bare:
        raise WrongTokenizer(f"special tokens around a text are {full}, should be {start + bare}")
