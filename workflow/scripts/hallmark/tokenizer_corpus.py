"""Strings on which tokenizers have been seen to differ, made by rule: scripts, marks, white space, code, long input.

The same strings every time for the same version of Python's Unicode tables. Holds no tokenizer; which of a tokenizer's
own tokens are written into text is said by the caller.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from random import Random

SEED = 20261202
SPACES = " \t\n\r\x0b\x0c\x1c\x85\u00a0\u1680\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0338\u0345\u0483\u05b0\u064b\u093c\u0e31\u20dd\u3099"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»–—‘’“”…、。「」！？"
DIGITS = (
    "0123456789",
    "٠١٢٣٤٥٦٧٨٩",
    "०१२३४५६७८९",
    "๐๑๒๓๔๕๖๗๘๙",
    "０１２３４５６７８９",
    "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗",
    "⁰¹²³⁴⁵⁶⁷⁸⁹",
    "ⅠⅡⅢⅣⅤ",
    "½⅓¼①②③",
)
WORDS = (
    "the", "Tokenizer", "isn't", "we'll", "naïve", "Straße", "İstanbul", "ΣΊΣΥΦΟΣ", "Привет", "мир", "שלום",
    "مرحبا", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "გამარჯობა",
    "ሰላም", "你好世界", "こんにちは", "カタカナ", "한국어", "Việt", "łódź", "🙂", "👩\u200d🚀", "x²", "ﬁn",
    "e.g.", "U.S.A.", "3.14", "1,000", "C++", "foo_bar", "camelCase", "##ing", "▁x", "Ġy", "<0x0A>",
    "\u00ad", "\ufffd",
)  # fmt: skip
EMOJI = (
    "🙂", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🇩🇪🇯🇵", "❤\ufe0f", "❤\ufe0e", "1\ufe0f\u20e3",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🧑\u200d💻", "🫠",
    "🏳\ufe0f\u200d🌈", "🚀🚀🚀", "👩🏿\u200d❤\ufe0f\u200d👨🏻", "\u200d", "🏽", "🀄", "🅰\ufe0f", "🈚",
    "☃", "⌚",
)  # fmt: skip
CODE = (
    "def f(x: int) -> str:\n    \"\"\"Doc.\"\"\"\n    return f'{x!r:>10}'  # why\n",
    "class A(B):\n\tdef __init__(self):\n\t\tsuper().__init__()\n\n\n",
    "for (int i = 0; i < n; ++i) {\n  a[i] += b[i] << 2;\n}\n",
    "template<typename T> std::vector<T> g(const T&& x) noexcept { return {x}; }\n",
    "const f = async ({a, ...rest}) => (await a?.b) ?? `${rest[0]}\\n`;\n",
    "fn main() -> Result<(), Box<dyn Error>> { println!(\"{:#?}\", x?); Ok(()) }\n",
    "SELECT t.a, COUNT(*) FROM t LEFT JOIN u ON t.id = u.id WHERE x <> 'y''z' GROUP BY 1;\n",
    "#!/bin/sh\nset -eu\nls -la | awk '{print $9}' > \"$OUT\" 2>&1 || exit 1\n",
    "<!DOCTYPE html>\n<div class=\"a b\" data-x='1'>&nbsp;&#x27;</div>\n<!-- end -->\n",
    "{\"a\": [1, -2.5e-3, null, true], \"b\": {\"c\": \"\\u00e9\\n\"}}\n",
    "\\begin{equation}\\label{eq:1} \\sum_{i=1}^{n} x_i^2 \\leq \\frac{1}{2} \\end{equation}\n",
    "key: value\nlist:\n  - a\n  - {b: c}\ntext: |\n  one\n\n  two\n",
    "| a | b |\n|:--|--:|\n| `x` | **y** |\n\n```py\nz = 1\n```\n- [ ] do\n",
    "    mov eax, [ebp-0x8] ; load\n\tjne\t.L2\n",
    "^(?:[A-Za-z0-9_]+)\\s*=\\s*\"([^\"\\\\]|\\\\.)*\"$",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n \n",
)  # fmt: skip
# Scripts that take whole ranges of code points: of these one range in eight is enough.
WIDE = (
    (0x3400, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF),
    (0x17000, 0x18AFF),
    (0x12000, 0x1467F),
    (0x20000, 0x323AF),
)
RANGE, LAST, PER_RANGE = 128, 0x323AF, 12


def generate(added: Sequence[str]) -> list[str]:
    """Some 1,600 different strings; `added` are tokens that the tokenizer finds in the text before anything else."""
    random = Random(SEED)
    parts = (
        _ranges(random), _controls(), _marks(random), _emoji(random), _digits(random), _spaces(random), _code(random),
        _punctuation(random), _repeats(), _mixed(random), _added(added), _long(random, added),
    )  # fmt: skip
    return list(dict.fromkeys(text for part in parts for text in part))


def _ranges(random: Random) -> Iterator[str]:
    """Characters of each range of 128 code points that has any: the whole of Unicode."""
    for start in range(0x80, LAST, RANGE):
        if any(low <= start <= high for low, high in WIDE) and start // RANGE % 8:
            continue
        assigned = [
            chr(code) for code in range(start, start + RANGE) if unicodedata.category(chr(code)) not in ("Cn", "Cs")
        ]
        if assigned:
            chosen = random.sample(assigned, min(PER_RANGE, len(assigned)))
            yield "".join(chosen) if start // RANGE % 3 else "word " + " ".join(sorted(chosen[:6])) + " word"


def _controls() -> Iterator[str]:
    """Every ASCII control, inside a word and by itself, and those of C1."""
    for code in (*range(0x20), 0x7F):
        yield f"a{chr(code)}b"
        yield f" {chr(code)} "
    yield from (f"x{chr(code)}y {chr(code)}" for code in range(0x80, 0xA0, 3))
    yield from (f"a{character}b" for character in "\u200e\u202e\u2060\u061c\ufffe\uffff\U000e0001\U0010fffd")


def _marks(random: Random) -> Iterator[str]:
    """Combining marks: composed and not, several on a letter, in another order, without a letter."""
    for base in "aeiouycnsAEIOUZΩαиאنकあ":
        marks = random.sample(MARKS, 3)
        text = base + "".join(marks)
        yield text
        yield unicodedata.normalize("NFC", f"{base}\u0301 {base}\u0327{marks[0]}")
        yield f"x{base}{marks[1]}{marks[2]}{marks[1]} {marks[0]}y"
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield from (
            unicodedata.normalize(form, text) for text in ("Ångström café ﬁ ½ Ⅳ ｶﾞ", "한국어 각", "क़ ड़ ཀྵ", "İıßſ")
        )
    yield "\u0301" * 3
    yield "z" + "\u0308\u0335" * 20


def _emoji(random: Random) -> Iterator[str]:
    yield from EMOJI
    for _ in range(40):
        yield random.choice(("", " ", "a")).join(random.choices(EMOJI, k=random.randint(2, 6)))


def _digits(random: Random) -> Iterator[str]:
    """Runs of digits of every length, with separators, signs and letters, in several scripts."""
    for length in (*range(1, 24), 31, 32, 33, 64, 100):
        yield "".join(random.choices(DIGITS[0], k=length))
    for digits in DIGITS:
        for _ in range(6):
            number = "".join(random.choices(digits, k=random.randint(1, 9)))
            yield random.choice(("{}", " {}", "-{}", "${}.00", "{}%", "a{}b", "{} {}", "0x{}", "{}:{}")).replace(
                "{}", number
            )


def _spaces(random: Random) -> Iterator[str]:
    """White space of every kind: alone, repeated, around and between words."""
    for space in SPACES:
        yield from (space, space * 2, space * 9, f"a{space}b", f"{space}a", f"a{space}", f"a {space}b", f"a{space} b")
    for length in (*range(3, 20), 31, 32, 33, 64, 80, 129):
        yield " " * length
        yield "\n" * length + "x"
        yield "x" + " " * length + "y"
    for _ in range(150):
        words = random.choices(WORDS, k=random.randint(1, 4))
        yield "".join(
            "".join(random.choices(SPACES[:10], k=random.randint(0, 4))) + word for word in words
        ) + random.choice(("", " ", "\n", "\t "))


def _code(random: Random) -> Iterator[str]:
    """Snippets, indented by spaces and tabs, with Windows line ends, and cut at any place."""
    for text in CODE:
        yield text
        yield "".join("        " + line for line in text.splitlines(keepends=True))
        yield text.replace("\n", "\r\n").replace("    ", "\t")
        for _ in range(3):
            start = random.randrange(len(text) - 8)
            yield text[start : start + random.randint(8, 60)]


def _punctuation(random: Random) -> Iterator[str]:
    yield from (character * count for character in PUNCTUATION for count in (1, 4))
    for _ in range(80):
        yield "".join(random.choices(PUNCTUATION + "ab1 ", k=random.randint(2, 16)))


def _repeats() -> Iterator[str]:
    """The same letter many times: words beyond any limit of length."""
    for letter in ("a", "Q", "é", "ж", "中", "한", "🙂", "-", "_", "="):
        yield from (letter * count for count in (2, 3, 7, 8, 16, 50, 99, 100, 101, 150))


def _mixed(random: Random) -> Iterator[str]:
    for _ in range(150):
        yield random.choice(("", " ", "  ", "\n", "-")).join(random.choices(WORDS, k=random.randint(2, 8)))


def _added(added: Sequence[str]) -> Iterator[str]:
    """Every token of the tokenizer's own inside text and at its edges, doubled, cut short, in another case."""
    for first in range(0, len(added), 48):
        yield "".join(f"x{token}" for token in added[first : first + 48])
    for token in [*added[:20], *added[-4:]]:
        yield from (token, f"a{token}b", f"a {token} b", f"{token} text", f"text {token}", f"\n{token}\n", token * 2)
        yield from (token[:-1], token.swapcase(), f"{token[0]} {token[1:]}")


def _long(random: Random, added: Sequence[str]) -> Iterator[str]:
    """Thousands of characters: words, code, one word, white space, digits, and tokens of the tokenizer's own."""
    for count in (300, 900):
        yield " ".join(random.choices(WORDS, k=count))
        yield "".join(random.choices(CODE, k=count // 30))
        yield "".join(random.choices([*WORDS, *SPACES, *added[:8]], k=count))
    yield "".join(random.choices("abcdefghij", k=3000))
    yield "".join(random.choices(DIGITS[0], k=3000))
    yield "".join(random.choices(SPACES[:4], k=3000))
    yield "中文" * 1500
