"""Compares an artifact's tokenizer and chat template with its source's, on some 2,000 strings. Holds no tokenizer.

Strings from the evaluation data say whether ordinary text comes out right. The built-in ones, and those that
`tokenizer_corpus` makes, are where converted tokenizers have been seen to differ. Each is encoded with the special
tokens that belong around a text, and without; conversations are rendered by the artifact's own chat template. What
differs is given a name (`tokenizer_difference`), and each name is a number that can be gated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hallmark import chat, tokenizer_corpus
from hallmark.statistics import Estimate, exact
from hallmark.tasks import Metric
from hallmark.tokenizer_difference import KINDS, Added, Row, name_difference

FILE = "strings.json"
EXAMPLES = 8  # mismatches of each kind that are written out for people
FROM_DATA = 200  # strings of the sample that are pieces of the evaluation data
METRICS = {
    "tokenizer_mismatch": Metric(
        "accuracy", "strings", "lower", "sample strings that become other ids than the source's"
    ),
    **{
        f"tokenizer_{kind}": Metric("accuracy", "strings", "lower", f"of these: {what}") for kind, what in KINDS.items()
    },
}
CHAT_METRIC = Metric(
    "accuracy", "conversations", "lower", "conversations that its own template and tokenizer turn wrong"
)

BUILT_IN = (
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\r\n", "a", " a", "a ", " a ", "  two spaces  inside  ",
    "            twelve spaces", "tab\tand\ttab", "line\nline\n\n\nline", "trailing newline\n",
    "no\u00a0break\u2009thin\u3000wide", "zero\u200bwidth\u200djoiner", "\ufeffbyte order mark",
    "soft\u00adhyphen", "Hello, world!", "HELLO WORLD", "hElLo WoRlD", "don't can't it's we'll they've I'm",
    "\u201ccurly\u201d \u2018quotes\u2019 – — …", "e-mail: first.last+tag@example.org",
    "https://example.org/a/b?c=d&e=%20#f", "C:\\Windows\\System32\\drivers",
    "/usr/local/lib/python3/site-packages", "0", "7", "42", "123", "1234", "1234567890", "3.14159",
    "1,000,000.00", "-1e-10", "0x1F", "2024-02-29T23:59:59Z", "50% of €99", "1st 2nd 3rd 4th", "½ ² Ⅳ ①",
    "x² + y² = z²", "∑∫√≠≤≥→", "def f(x):\n    return x ** 2\n",
    "for (int i = 0; i < n; ++i) { a[i] += 1; }", "SELECT * FROM t WHERE a <> 'b';",
    "<html><body class=\"x\">&amp;</body></html>", '{"key": [1, 2.5, null, true]}',
    "$ ls -la | grep '^d' > out.txt", "\\frac{a}{b} \\alpha_{i}", "!!!???...;;;:::", "((([[[{{{}}}]]])))",
    "==========----------__________", "naïve café résumé Ångström", "nai\u0308ve cafe\u0301 (decomposed)",
    "Straße Übergröße", "Łódź żółć český", "Türkçe İstanbul ışık", "Tiếng Việt", "Привет, мир",
    "Γειά σου κόσμε", "你好，世界。", "こんにちは世界", "カタカナ ｶﾀｶﾅ", "안녕하세요",
    "مرحبا بالعالم", "שלום עולם", "नमस्त\u0947 द\u0941निया",
    "สว\u0e31สด\u0e35ชาวโลก", "გამარჯობა", "ሰላም", "𠀀𪛖 rare characters", "🙂", "👍🏽",
    "👨\u200d👩\u200d👧", "🇩🇪🇯🇵", "❤\ufe0f and ❤", "mixed 🚀 rocket🚀text", "\ufffd", "<s>", "</s>",
    "<unk>", "<pad>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<bos>", "<eos>",
    "<start_of_turn>user", "[CLS]", "[SEP]", "[MASK] is a word", "a [UNK] b", "<0x0A>", "▁", "Ġ", "##ing",
    "supercalifragilisticexpialidocious", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "antidisestablishmentarianism" * 4, "camelCaseIdentifier snake_case_name kebab-case",
)  # fmt: skip


def choose(texts: Sequence[str], count: int, added: Sequence[str] = ()) -> list[str]:
    """`count` different strings: the built-in ones, made ones, then pieces of the texts of 20 to 200 characters.

    `added` are the tokenizer's own tokens, to be written into text. When there is no room for all, made ones are left
    out, evenly.
    """
    made = [text for text in tokenizer_corpus.generate(added) if text not in set(BUILT_IN)]
    room = max(0, count - len(BUILT_IN) - min(FROM_DATA, count // 4))
    if len(made) > room:
        made = [made[number * len(made) // room] for number in range(room)]
    chosen = [*BUILT_IN, *made][:count]
    return list(dict.fromkeys([*chosen, *_pieces(texts, count - len(chosen))]))


def _pieces(texts: Sequence[str], wanted: int) -> list[str]:
    """Pieces from all over the texts."""
    pieces = []
    for position in range(wanted):
        text = texts[position * len(texts) // wanted]
        start = (position * 997) % max(1, len(text) - 200)
        pieces.append(text[start : start + 20 + (position * 37) % 180])
    return pieces


def write(folder: Path, runner: Any, strings: Sequence[str], conversations: bool = False) -> None:
    """Store what the source's tokenizer makes of the strings, and of the conversations if it is asked to.

    `{"strings": [{"text", "ids", "bare", "spans"}], "added": [ids], "unknown": id, "conversations": [...]}`: `bare` are
    the ids without the special tokens around the text, `spans` where in the text each of them comes from.
    """
    rows = [
        {"text": text, "ids": runner.encode(text), "bare": runner.encode(text, False), "spans": runner.spans(text)}
        for text in strings
    ]
    rendered: list[dict[str, Any]] = []
    template, tokens = runner.chat() if conversations else ("", {})
    if template:
        for found in chat.render_all(template, tokens):
            rendered.append({**found, "ids": runner.encode(found["text"], False) if "text" in found else []})
    special = runner.special()
    content = {"strings": rows, "conversations": rendered, "added": special["added"], "unknown": special["unknown"]}
    (folder / FILE).write_text(json.dumps(content, ensure_ascii=True, separators=(",", ":")), encoding="utf-8")


def compare(folder: Path, runner: Any) -> tuple[dict[str, Estimate], list[dict[str, Any]]]:
    """How many of the stored strings the runner's tokenizer turns into other ids, by kind, and some for people to read.

    A string counts once, with or without special tokens. One that cannot be encoded at all is of the kind `failed`.
    """
    content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    added = Added(frozenset(content["added"].values()), tuple(content["added"]), content["unknown"])
    counts, examples = dict.fromkeys(KINDS, 0), []
    for row in content["strings"]:
        found = _compare_string(row, runner, added)
        if found:
            counts[found["kind"]] += 1
            if counts[found["kind"]] <= EXAMPLES:
                examples.append(found)
    total = {"tokenizer_mismatch": sum(counts.values()), **{f"tokenizer_{kind}": n for kind, n in counts.items()}}
    number = len(content["strings"])
    return {name: exact(value, number, METRICS[name].unit) for name, value in total.items()}, examples


def _compare_string(row: dict[str, Any], runner: Any, added: Added) -> dict[str, Any] | None:
    """The first difference of a string, with special tokens and then, where the runtime can do so, without."""
    for special in (True, False) if getattr(runner, "encodes_bare", True) else (True,):
        expected = Row.of(row, special, getattr(runner, "cuts_at", None))
        try:
            got = [int(token) for token in runner.encode(row["text"], special)]
        except Exception as error:  # whatever its runtime raises: it could not encode this string
            told = {"kind": "failed", "error": f"{type(error).__name__}: {error}", "expected": expected.ids}
            return {"text": row["text"], "special": special, **told}
        if got != expected.ids:
            kind, place = name_difference(expected, got, added)
            told = {"kind": kind, "at": place, "expected": expected.ids, "got": got}
            return {"text": row["text"], "special": special, **told}
    return None


def compare_chat(folder: Path, runner: Any) -> tuple[Estimate, list[dict[str, Any]]]:
    """How many conversations come out otherwise, and each of them with what is different: text, refusal or ids."""
    stored = json.loads((folder / FILE).read_text(encoding="utf-8"))["conversations"]
    template, tokens = runner.chat()
    found: list[dict[str, str]] = [{"error": "no chat template"}] * len(stored)
    if template:
        found = chat.render_all(template, tokens)
    examples = []
    for conversation, expected, got in zip(chat.CONVERSATIONS, stored, found, strict=False):
        told = {"conversation": chat.describe(conversation)}
        if {key: expected.get(key) for key in ("text", "error")} != {key: got.get(key) for key in ("text", "error")}:
            examples.append({**told, "kind": "template", "expected": {**expected, "ids": None}, "got": got})
        elif "text" in got:
            try:
                ids = [int(token) for token in runner.encode(got["text"], False)]
            except Exception as error:  # as for strings
                failed = {"error": f"{type(error).__name__}: {error}", "expected": expected["ids"]}
                examples.append({**told, "kind": "failed", "text": got["text"], **failed})
                continue
            if ids != expected["ids"]:
                examples.append({**told, "kind": "ids", "text": got["text"], "expected": expected["ids"], "got": ids})
    return exact(len(examples), len(stored), CHAT_METRIC.unit), examples
