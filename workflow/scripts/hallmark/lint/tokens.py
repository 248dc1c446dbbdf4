"""Lint: vocabulary, special and added tokens, and the ids in the configs, against the rows of the embedding."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hallmark.checkpoint import CONFIG, Checkpoint
from hallmark.lint import vocabulary
from hallmark.lint.findings import Finding, found, some
from hallmark.lint.settings import GENERATION, TOKENIZER_CONFIG
from hallmark.lint.vocabulary import BadVocabulary, Vocabulary

# The table of token vectors by the names that transformers' architectures give it.
EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|tok_embeddings|word_embeddings|token_embedding|token_embeddings|embed_in|wte|embeddings?"
    r"|shared|backbone\.embeddings)\.weight$"
)
IDS = re.compile(r"(bos|eos|pad|sep|cls|mask|decoder_start|forced_bos|forced_eos)_token_id")


def embedding(checkpoint: Checkpoint) -> tuple[str, int]:
    """Name and rows of the table of token vectors; of several the one with the shortest name.

    Without one by a known name, the config's `vocab_size`; 0 when that is missing too.
    """
    named = [
        (len(name), name, tensor.shape[0])
        for name, tensor in checkpoint.tensors.items()
        if EMBEDDING.search(name) and len(tensor.shape) == 2
    ]
    if named:
        _, name, rows = min(named)
        return name, rows
    size = checkpoint.text_config.get("vocab_size")
    return "vocab_size of config.json", size if isinstance(size, int) else 0


def tokenizer(checkpoint: Checkpoint) -> Iterator[Finding]:
    pair = {"vocab.json", "merges.txt"} <= checkpoint.files.keys()
    if not pair and not any(name in checkpoint.files for name in vocabulary.FILES if name != "vocab.json"):
        known = ", ".join(name for name in vocabulary.FILES if name != "vocab.json")
        what = "missing, and so is every other tokenizer file"
        yield found("no_tokenizer", "tokenizer.json", what, f"add one of {known}, or vocab.json with merges.txt")
    for name in _present(checkpoint):
        try:
            vocabulary.read(checkpoint, name)
        except BadVocabulary as error:
            yield found("bad_tokenizer", name, str(error))


def _present(checkpoint: Checkpoint) -> list[str]:
    """The vocabulary files; a vocab.json without merges.txt may be anything."""
    alone = "merges.txt" not in checkpoint.files
    return [name for name in vocabulary.FILES if name in checkpoint.files and not (name == "vocab.json" and alone)]


def vocabularies(checkpoint: Checkpoint) -> list[Vocabulary]:
    """Every vocabulary that can be read, the one that transformers takes first."""
    readable = []
    for name in _present(checkpoint):
        try:
            readable.append(vocabulary.read(checkpoint, name))
        except BadVocabulary:
            continue
    return readable


def rows(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Every token needs a row: without one, an id indexes beyond the table."""
    name, count = embedding(checkpoint)
    for known in vocabularies(checkpoint) if count else ():
        if known.size > count:
            yield found("tokens_beyond_rows", known.file, f"{known.size:,} tokens, {count:,} rows in {name}")


def differing(checkpoint: Checkpoint) -> Iterator[Finding]:
    """The other files of the same vocabulary; a SentencePiece model is not one, as classes number its pieces anew."""
    first, *others = vocabularies(checkpoint) or [Vocabulary("", {}, 0)]
    extra = {token for tokens in vocabulary.added(checkpoint).values() for token in tokens}
    for other in others if first.file == "tokenizer.json" else ():
        if other.file not in ("vocab.txt", "vocab.json") or not first.ids or not other.ids:
            continue
        lost = (first.ids.keys() ^ other.ids.keys()) - extra
        moved = [token for token in first.ids.keys() & other.ids.keys() if first.ids[token] != other.ids[token]]
        if lost or moved:
            names = some(map(repr, sorted(lost or moved)[:3]))
            what = f"{len(lost):,} tokens are not in both it and {first.file}, {len(moved):,} have other ids: {names}"
            yield found("vocabularies_differ", other.file, what)


def added_tokens(checkpoint: Checkpoint) -> Iterator[Finding]:
    name, count = embedding(checkpoint)
    used = set(vocabulary.roles(checkpoint).values())
    for file, tokens in vocabulary.added(checkpoint).items() if count else ():
        beyond = {token: number for token, number in sorted(tokens.items()) if number >= count}
        for token in sorted(beyond.keys() & used):
            what = f"{token!r} has id {beyond[token]:,}, {name} has {count:,} rows"
            yield found("special_token_beyond_rows", file, what)
        if others := sorted(beyond.keys() - used):
            what = f"{some(map(repr, others))} beyond the {count:,} rows of {name}"
            yield found("added_token_beyond_rows", file, what)


def special_tokens(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Special tokens that nothing lists get the ids behind the vocabulary when the tokenizer is loaded."""
    known = _known(checkpoint)
    name, count = embedding(checkpoint)
    if known is None or not count:
        return
    behind = 1 + max(known.values(), default=-1)
    for role, token in vocabulary.roles(checkpoint).items():
        if token in known:
            continue
        what = f"{role}_token {token!r} is in no vocabulary, so it gets id {behind:,}; {name} has {count:,} rows"
        code = "special_token_unknown" if behind < count else "special_token_beyond_rows"
        yield found(code, TOKENIZER_CONFIG, what)
        known[token], behind = behind, behind + 1


def _known(checkpoint: Checkpoint) -> dict[str, int] | None:
    """Every token that the tokenizer knows, or None where the files do not list them all.

    XLM-RoBERTa's and T5's classes add tokens of their own to a SentencePiece model; Llama's does not.
    """
    read = vocabularies(checkpoint)
    if not read or not read[0].ids or read[0].file in ("spiece.model", "sentencepiece.bpe.model"):
        return None
    known = dict(read[0].ids)
    for tokens in vocabulary.added(checkpoint).values():
        known |= tokens
    return known


def token_ids(checkpoint: Checkpoint) -> Iterator[Finding]:
    name, count = embedding(checkpoint)
    for file, key, number in _ids(checkpoint):
        if count and number >= count:
            yield found("token_id_beyond_rows", file, f"{key} is {number:,}, {name} has {count:,} rows")


def _ids(checkpoint: Checkpoint) -> Iterator[tuple[str, str, int]]:
    """(file, key, id) of every id of a special token in the configs."""
    places = ((CONFIG, checkpoint.text_config), (GENERATION, checkpoint.json(GENERATION)))
    for file, content in places:
        for key, value in content.items():
            numbers: list[Any] = value if isinstance(value, list) else [value]
            if IDS.fullmatch(key):
                yield from ((file, key, number) for number in numbers if type(number) is int)


def stop_token(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Generation goes on when the token that ends an answer is none that it stops at."""
    stops = {number for _, key, number in _ids(checkpoint) if key == "eos_token_id"}
    token, known = vocabulary.roles(checkpoint).get("eos"), _known(checkpoint)
    if stops and token and known and token in known and known[token] not in stops:
        what = f"eos_token {token!r} has id {known[token]:,}, generation stops at {some(map(str, sorted(stops)))}"
        yield found("stop_token_differs", TOKENIZER_CONFIG, what)


def conflicts(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Each reader takes its own file, so they have to agree."""
    ids: dict[str, dict[int, str]] = defaultdict(dict)
    tokens: dict[int, dict[str, str]] = defaultdict(dict)
    for file, listed in vocabulary.added(checkpoint).items():
        for token, number in listed.items():
            ids[token].setdefault(number, file)
            tokens[number].setdefault(token, file)
    for token, places in sorted(ids.items()):
        if len(places) > 1:
            what = "; ".join(f"{number:,} in {file}" for number, file in sorted(places.items()))
            yield found("token_ids_conflict", next(iter(places.values())), f"{token!r} is {what}")
    for number, names in sorted(tokens.items()):
        if len(names) > 1:
            what = "; ".join(f"{token!r} in {file}" for token, file in sorted(names.items()))
            yield found("token_ids_conflict", next(iter(names.values())), f"id {number:,} is {what}")


CHECKS = (tokenizer, rows, differing, added_tokens, special_tokens, token_ids, stop_token, conflicts)
