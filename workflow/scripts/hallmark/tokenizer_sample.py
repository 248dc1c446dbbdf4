"""A fixed sample of strings on which an artifact's tokenizer is compared with its source's. Holds no tokenizer.

Strings from the evaluation data say whether ordinary text comes out right. The built-in ones are where converted
tokenizers have been seen to differ: white space, digits, scripts, emoji, code, and special tokens written as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hallmark.statistics import Estimate, exact
from hallmark.tasks import Metric

FILE = "strings.json"
METRIC = Metric("accuracy", "strings", "lower", "sample strings that become other ids than the source's")
EXAMPLES = 20  # mismatches that are written out for people

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


def choose(texts: Sequence[str], count: int) -> list[str]:
    """`count` different strings: the built-in ones, then pieces of the texts of 20 to 200 characters, spread evenly."""
    wanted = max(0, count - len(BUILT_IN))
    pieces: list[str] = []
    for position in range(wanted):
        text = texts[position * len(texts) // wanted]
        start = (position * 997) % max(1, len(text) - 200)
        pieces.append(text[start : start + 20 + (position * 37) % 180])
    return list(dict.fromkeys([*BUILT_IN[:count], *pieces]))


def write(folder: Path, encode: Callable[[str], list[int]], strings: Sequence[str]) -> None:
    """Store the strings with the source tokenizer's ids: `[{"text", "ids"}]`."""
    rows = [{"text": text, "ids": encode(text)} for text in strings]
    (folder / FILE).write_text(json.dumps(rows, ensure_ascii=True, indent=0), encoding="utf-8")


def compare(folder: Path, encode: Callable[[str], list[int]]) -> tuple[Estimate, list[dict[str, Any]]]:
    """How many of the stored strings `encode` turns into other ids, and the first of them for people to read.

    A tokenizer that cannot encode a string at all mismatches there; the example then has `error` in place of `got`.
    """
    rows = json.loads((folder / FILE).read_text(encoding="utf-8"))
    mismatches: list[dict[str, Any]] = []
    for row in rows:
        try:
            got: dict[str, Any] = {"got": [int(token) for token in encode(row["text"])]}
        except Exception as error:  # whatever its runtime raises: it could not encode this string
            got = {"error": f"{type(error).__name__}: {error}"}
        if got.get("got") != row["ids"]:
            mismatches.append({"text": row["text"], "expected": row["ids"], **got})
    return exact(len(mismatches), len(rows), METRIC.unit), mismatches[:EXAMPLES]
