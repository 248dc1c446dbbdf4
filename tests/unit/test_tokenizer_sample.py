"""The tokenizer comparison: what it is made of, what it counts, and which name a difference gets."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from hallmark import chat, tokenizer_corpus, tokenizer_sample
from hallmark.tokenizer_difference import KINDS, Added, Row, name_difference

ROOT = Path(__file__).parents[2]
UNKNOWN, FIRST, LAST = 0, 1, 2
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('a system turn must come first') }}{% endif %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class Tokenizer:
    """A letter is a token; `<s>` is one where it stands in the text; control characters are unknown.

    It can be made to go wrong: `change` rewrites the text before it is encoded.
    """

    def __init__(self, change=lambda text: text, ends=(FIRST, LAST), template=TEMPLATE):
        self.change, self.ends, self.template = change, ends, template

    def encode(self, text, special=True):
        text, ids = self.change(text), []
        while text:
            token, text = ("<s>", text[3:]) if text.startswith("<s>") else (text[0], text[1:])
            ids.append(FIRST if token == "<s>" else UNKNOWN if token == "ж" else 10 + ord(token))
        return [*self.ends[:1], *ids, *self.ends[1:]] if special else ids

    def spans(self, text):
        spans, place = [], 0
        while place < len(text):
            length = 3 if text.startswith("<s>", place) else 1
            spans.append((place, place + length))
            place += length
        return spans

    def special(self):
        return {"added": {"<unk>": UNKNOWN, "<s>": FIRST, "</s>": LAST}, "unknown": UNKNOWN}

    def chat(self):
        return self.template, {"bos_token": "<s>"}


TEXTS = [f"an ordinary text, number {number}, of the evaluation's own data" for number in range(300)]


def test_the_sample_is_fixed_large_and_has_no_doubles():
    chosen = tokenizer_sample.choose(TEXTS, 2000, ["<s>", "</s>"])
    assert chosen == tokenizer_sample.choose(TEXTS, 2000, ["<s>", "</s>"])
    assert 1900 < len(chosen) == len(set(chosen)) <= 2000
    assert set(tokenizer_sample.BUILT_IN) < set(chosen)
    assert sum(text in TEXTS[0] or text in TEXTS[7] for text in chosen)


def test_the_made_strings_reach_into_every_corner():
    added = [f"<|{number}|>" for number in range(300)]
    made = tokenizer_corpus.generate(added)
    text = "".join(made)
    assert {chr(code) for code in (*range(0x20), 0x7F)} <= set(text)
    assert {token for token in added if token in text} == set(added)
    blocks = {ord(character) >> 8 for character in text}
    assert set(range(0x1D)) - {0x08} <= blocks  # every script of the first planes' alphabets
    assert {0x1F6, 0x103, 0x200} <= blocks
    assert max(map(len, made)) > 3000
    assert sum(len(made_again) for made_again in tokenizer_corpus.generate(added)) == len(text)


def test_fewer_strings_are_still_of_every_sort():
    few = tokenizer_sample.choose(TEXTS, 300)
    assert len(few) <= 300
    assert any("\u4e00" <= character <= "\u9fff" for text in few for character in text)


def written(folder, strings, conversations=False):
    tokenizer_sample.write(folder, Tokenizer(), strings, conversations)
    return folder


def test_the_source_against_itself_has_no_mismatch(tmp_path):
    folder = written(tmp_path, tokenizer_sample.choose(TEXTS, 2000, ["<s>"]), conversations=True)
    found, examples = tokenizer_sample.compare(folder, Tokenizer())
    assert {name: estimate["value"] for name, estimate in found.items()} == dict.fromkeys(tokenizer_sample.METRICS, 0)
    assert examples == []
    conversations, wrong = tokenizer_sample.compare_chat(folder, Tokenizer())
    assert (conversations["value"], conversations["n"], wrong) == (0, len(chat.CONVERSATIONS), [])


FAULTS = {
    "boundary": (["plain"], Tokenizer(ends=(FIRST,)), "plain"),
    "special": (["a<s>b"], Tokenizer(lambda text: text.replace("<s>", "< s>")), "a<s>b"),
    "whitespace": (["two  words"], Tokenizer(lambda text: text.replace("  ", " ")), "two  words"),
    "normalisation": (["cafe\u0301"], Tokenizer(lambda text: text.replace("\u0301", "")), "cafe\u0301"),
    "control": (["a\x07b"], Tokenizer(lambda text: text.replace("\x07", "")), "a\x07b"),
    "numerals": (["in 1984"], Tokenizer(lambda text: text.replace("8", "0")), "in 1984"),
    "unknown": (["aжb"], Tokenizer(lambda text: text.replace("ж", "c")), "aжb"),
    "other": (["a word"], Tokenizer(lambda text: text.replace("w", "v")), "a word"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_difference_gets_its_name(tmp_path, kind):
    strings, faulty, text = FAULTS[kind]
    found, examples = tokenizer_sample.compare(written(tmp_path, [*strings, "fine"]), faulty)
    if kind == "boundary":
        assert found.pop("tokenizer_boundary")["value"] == 2
    else:
        assert found["tokenizer_mismatch"]["value"] == found[f"tokenizer_{kind}"]["value"] == 1
    assert examples[0]["text"] == text
    assert examples[0]["kind"] == kind


def test_a_lost_first_token_is_seen_though_the_text_is_right(tmp_path):
    found, examples = tokenizer_sample.compare(written(tmp_path, ["plain"]), Tokenizer(ends=()))
    assert found["tokenizer_boundary"]["value"] == 1
    assert examples[0]["special"] is True


def test_encoding_without_special_tokens_is_compared_too(tmp_path):
    class Always(Tokenizer):
        def encode(self, text, special=True):
            return super().encode(text)

    found, examples = tokenizer_sample.compare(written(tmp_path, ["plain"]), Always())
    assert found["tokenizer_boundary"]["value"] == 1
    assert examples[0]["special"] is False
    runtime = Always()
    runtime.encodes_bare = False
    assert tokenizer_sample.compare(tmp_path, runtime)[0]["tokenizer_mismatch"]["value"] == 0


def test_a_runtime_that_cuts_is_held_to_what_it_keeps(tmp_path):
    class Cut(Tokenizer):
        cuts_at = 6

        def encode(self, text, special=True):
            ids = super().encode(text, special)
            return [*ids[:5], LAST] if special and len(ids) > 6 else ids[:6]

    folder = written(tmp_path, ["short", "a longer text than that"])
    assert tokenizer_sample.compare(folder, Cut())[0]["tokenizer_mismatch"]["value"] == 0
    assert tokenizer_sample.compare(folder, Cut(lambda text: text.replace("lo", "ol")))[0]["tokenizer_mismatch"][
        "value"
    ]


def test_what_cannot_be_encoded_is_of_the_kind_failed(tmp_path):
    def broken(text):
        if "x" in text:
            raise RuntimeError("no x here")
        return text

    found, examples = tokenizer_sample.compare(written(tmp_path, ["plain", "x", " "]), Tokenizer(broken))
    assert (found["tokenizer_mismatch"]["value"], found["tokenizer_failed"]["value"]) == (1, 1)
    assert examples[0]["error"] == "RuntimeError: no x here"


def test_the_gravest_of_several_differences_names_the_string():
    added = Added(frozenset({FIRST}), ("<s>",), None)
    text = "a\x07b<s>"
    expected = Row(text, [107, 17, 108, FIRST], [(0, 1), (1, 2), (2, 3), (3, 6)])
    assert name_difference(expected, [107, 108, 70, 125, 72], added)[0] == "special"
    assert list(KINDS).index("special") < list(KINDS).index("control")


def test_examples_hold_some_of_each_kind(tmp_path):
    folder = written(tmp_path, [*(f"word {n}w" for n in range(100, 150)), "a\x07b"])
    _, examples = tokenizer_sample.compare(folder, Tokenizer(lambda text: text.replace("\x07", "").replace("wo", "ow")))
    assert [example["kind"] for example in examples] == ["other"] * tokenizer_sample.EXAMPLES + ["control"]


# Conversations


@pytest.mark.parametrize(
    ("template", "kind", "count"),
    [
        ("", "template", len(chat.CONVERSATIONS)),
        (TEMPLATE.replace("\n{% endfor %}", "{% endfor %}"), "template", len(chat.CONVERSATIONS)),
        (TEMPLATE.replace(" | tojson", ""), "template", 2),
        (TEMPLATE.replace("<|assistant|>", "<|assistant|>\n"), "template", len(chat.CONVERSATIONS) - 1),
    ],
)
def test_another_template_is_seen(tmp_path, template, kind, count):
    found, wrong = tokenizer_sample.compare_chat(written(tmp_path, [], True), Tokenizer(template=template))
    assert found["value"] == count
    assert {example["kind"] for example in wrong} == {kind}


def test_another_encoding_of_a_conversation_is_seen(tmp_path):
    faulty = Tokenizer(lambda text: text.replace("\t", " "))
    found, wrong = tokenizer_sample.compare_chat(written(tmp_path, [], True), faulty)
    assert found["value"] == len(wrong) == 1
    assert (wrong[0]["kind"], wrong[0]["conversation"]) == ("ids", "user")


def test_a_refused_conversation_has_to_be_refused_by_the_artifact_too(tmp_path):
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + TEMPLATE
    tokenizer_sample.write(tmp_path, Tokenizer(template=strict), [], conversations=True)
    stored = json.loads((tmp_path / tokenizer_sample.FILE).read_text())["conversations"]
    assert sum(row.get("error") == "no system turn" for row in stored) == 4
    assert tokenizer_sample.compare_chat(tmp_path, Tokenizer(template=strict))[0]["value"] == 0
    assert tokenizer_sample.compare_chat(tmp_path, Tokenizer())[0]["value"] == 4


def test_a_source_without_a_template_has_no_conversations(tmp_path):
    tokenizer_sample.write(tmp_path, Tokenizer(template=""), [], conversations=True)
    assert tokenizer_sample.compare_chat(tmp_path, Tokenizer())[0] == {
        "value": 0.0, "low": 0.0, "high": 0.0, "n": 0, "unit": "conversations",
    }  # fmt: skip


def test_conversations_have_what_tells_implementations_apart():
    told = [chat.describe(conversation) for conversation in chat.CONVERSATIONS]
    assert any(roles.startswith("system") for roles in told)
    assert any("with tools" in roles for roles in told)
    assert any(not message["content"] for item in chat.CONVERSATIONS for message in item["messages"])


AS_TRANSFORMERS_DOES = """
import datetime, json, sys
from transformers.utils import chat_template_utils as theirs
from hallmark import chat
template = json.loads(sys.stdin.read())
class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return chat.DATE
for module in (theirs, datetime):
    if hasattr(module, "datetime"):
        setattr(module, "datetime", Fixed)
for conversation, ours in zip(chat.CONVERSATIONS, chat.render_all(template, {"bos_token": "<s>"})):
    how = {"add_generation_prompt": True, "tools": None, **conversation}
    try:
        expected = theirs.render_jinja_template([how.pop("messages")], chat_template=template, bos_token="<s>", **how)
        assert ours == {"text": expected[0][0]}, (ours, expected)
    except theirs.jinja2.exceptions.TemplateError as error:
        assert ours == {"error": str(error)}, (ours, error)
print("same")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        "{% for m in messages %}\n    {%- if m.role == 'assistant' %}\n{% generation %}{{ m.content }}"
        "{% endgeneration %}\n    {%- else %}{{ m.content | trim }}{% endif %}\n{% endfor %}"
        "{{ strftime_now('%d %b %Y') }}",
        "{% for m in messages %}{% if loop.index0 > 1 %}{% break %}{% endif %}{{ m | tojson(indent=2) }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x }}{% endfor %}",
    ],
)  # fmt: skip
def test_templates_are_rendered_as_transformers_does(toolchain, template):
    command, scripts = [toolchain("torch"), "-c", AS_TRANSFORMERS_DOES], str(ROOT / "workflow/scripts")
    environment = {**os.environ, "PYTHONPATH": scripts, "HF_HUB_OFFLINE": "1"}
    text = json.dumps(template)
    ran = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "same", ran.stderr
