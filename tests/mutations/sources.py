"""Seeded defects in a checkpoint folder: config, tokenizer, code; and those in its weights (`source_weights`).

What has nothing in the folder to be compared with (two layers exchanged, a square matrix transposed, an encoder's
number of heads) shows in no checkpoint alone, and is seeded in artifacts instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mutations import source_weights
from tests.mutations.checkpoint_edits import edit, edit_json, embedding, load, read_json, replace
from tests.mutations.source_weights import LFS, Apply, seeded

CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
TOKENIZERS = (TOKENIZER, "vocab.txt", "vocab.json", "merges.txt", "tokenizer.model")
LANGUAGE_MODEL = ("smollm2",)


def config(**changes: Any) -> Apply:
    """Other settings in config.json."""
    return lambda folder: edit_json(folder / CONFIG, lambda content: content.update(changes))


def by(name: str, change: Callable[[int], int]) -> Apply:
    """A number in config.json that follows from the one that is there."""
    return lambda folder: edit_json(
        folder / CONFIG, lambda content: content.update({name: change(content[name])})
    )  # fmt: skip


def rows(folder: Path) -> int:
    tensors = load(folder)
    return tensors[embedding(tensors)][1][0]


def _fewer_rows(folder: Path) -> None:
    """The table of token vectors, and config.json with it, 100 rows shorter than the vocabulary."""

    def cut(tensors: Any) -> None:
        for name, (dtype, shape, data) in tensors.items():
            if shape and shape[0] == count:
                left = count - 100
                tensors[name] = dtype, (left, *shape[1:]), data[: len(data) // count * left]

    count = rows(folder)
    edit(folder, cut)
    by("vocab_size", lambda size: size - 100)(folder)


def _padding_beyond(folder: Path) -> None:
    """A padding token that a fine-tune added without a row for it."""
    count = rows(folder)
    token = {"id": count, "content": "<added_pad>", "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}  # fmt: skip
    edit_json(folder / TOKENIZER, lambda content: content["added_tokens"].append(token))
    edit_json(folder / SETTINGS, lambda content: content.update(pad_token="<added_pad>"))


def _id_beyond(file: str, key: str) -> Apply:
    return lambda folder: edit_json(folder / file, lambda content: content.update({key: rows(folder)}))


def _without_tokenizer(folder: Path) -> None:
    for name in TOKENIZERS:
        (folder / name).unlink(missing_ok=True)


def _without_vocabulary(folder: Path) -> None:
    edit_json(folder / TOKENIZER, lambda content: content.pop("model"))


def _vocabulary_cut(folder: Path) -> None:
    """The last tenth of the vocabulary is lost, as when a file of an earlier step of the training lies there."""

    def cut(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        left = sorted(vocabulary, key=vocabulary.__getitem__)[: len(vocabulary) * 9 // 10]
        content["model"]["vocab"] = {token: vocabulary[token] for token in left}

    edit_json(folder / TOKENIZER, cut)


def _ids_shifted(folder: Path) -> None:
    """A token was put in front of those that were not added later, and the last one fell out."""

    def shift(content: dict[str, Any]) -> None:
        added = {token["content"] for token in content["added_tokens"]}
        vocabulary, count = content["model"]["vocab"], rows(folder)
        first = min(number for token, number in vocabulary.items() if token not in added)
        moved = {token: number + (token not in added) for token, number in vocabulary.items()}
        content["model"]["vocab"] = {"<put_in>": first} | {
            token: number for token, number in moved.items() if number < count
        }

    edit_json(folder / TOKENIZER, shift)


def _template_broken(folder: Path) -> None:
    replace(folder / "chat_template.jinja", b"{% for m in messages %}<|{{ m.role }}|>{{ m.content }")


def _code(folder: Path) -> None:
    kind = read_json(folder / CONFIG)["architectures"][0]
    config(auto_map={"AutoModel": f"modeling_own.{kind}"})(folder)
    replace(folder / "modeling_own.py", b"raise SystemExit('remote code ran')\n")


def _cut_json(name: str) -> Apply:
    def apply(folder: Path) -> None:
        data = (folder / name).read_bytes()
        replace(folder / name, data[: len(data) * 2 // 3])

    return apply


MUTATIONS = (
    *source_weights.MUTATIONS,
    seeded("config_lost", ("no_config",), lambda folder: (folder / CONFIG).unlink(), "ggml-org/llama.cpp#8451"),
    seeded("config_cut_off", ("not_json",), _cut_json(CONFIG)),
    seeded("architecture_lost", ("no_architecture",), config(architectures=[])),
    seeded("architecture_unknown", ("cannot_build",), config(architectures=["NoSuchModel"])),
    seeded("fewer_layers", ("surplus_layers",), by("num_hidden_layers", lambda count: count - 1)),
    seeded("more_layers", ("missing",), by("num_hidden_layers", lambda count: count + 1)),
    seeded("more_rows_in_config", ("shape_differs",), by("vocab_size", lambda size: size + 8)),
    seeded("hidden_size_doubled", ("shape_differs", "cannot_build"), by("hidden_size", lambda size: 2 * size)),
    seeded("inner_size_halved", ("shape_differs",), by("intermediate_size", lambda size: size // 2)),
    seeded("other_key_heads", ("shape_differs", "cannot_build"), by("num_key_value_heads", lambda count: 1),
           "meta-llama/llama#427", LANGUAGE_MODEL),
    seeded("other_head_size", ("shape_differs",), config(head_dim=128), "ServiceNow/Fast-LLM#102", LANGUAGE_MODEL),
    seeded("untied_without_head", ("missing",), config(tie_word_embeddings=False), "QwenLM/Qwen3-VL-Embedding#89",
           LANGUAGE_MODEL),
    seeded("rope_unknown", ("unknown_rope",), config(rope_scaling={"rope_type": "ntk-by-hand", "factor": 4.0}),
           "ml-explore/mlx-lm#5", LANGUAGE_MODEL),
    seeded("rope_dynamic", ("rope_not_carried",), config(rope_scaling={"rope_type": "dynamic", "factor": 4.0}),
           "ggml-org/llama.cpp#2772", LANGUAGE_MODEL),
    seeded("code_of_its_own", ("remote_code",), _code),
    seeded("table_shorter_than_vocabulary", ("tokens_beyond_rows",), _fewer_rows, "OpenNMT/CTranslate2#1618"),
    seeded("padding_without_a_row", ("special_token_beyond_rows",), _padding_beyond, "OpenNMT/CTranslate2#1415"),
    seeded("end_id_beyond_rows", ("token_id_beyond_rows",), _id_beyond(GENERATION, "eos_token_id")),
    seeded("padding_id_beyond_rows", ("token_id_beyond_rows",), _id_beyond(CONFIG, "pad_token_id")),
    seeded("generation_config_cut_off", ("not_json",), _cut_json(GENERATION), subjects=LANGUAGE_MODEL),
    seeded("tokenizer_lost", ("no_tokenizer",), _without_tokenizer, "ggml-org/llama.cpp#9673"),
    seeded("tokenizer_without_vocabulary", ("bad_tokenizer",), _without_vocabulary),
    seeded("tokenizer_cut_off", ("not_json",), _cut_json(TOKENIZER)),
    seeded("tokenizer_is_a_pointer", ("not_json",), lambda folder: replace(folder / TOKENIZER, LFS)),
    seeded("vocabulary_cut", ("bad_tokenizer", "vocabularies_differ"), _vocabulary_cut),
    seeded("token_ids_shifted", ("bad_tokenizer", "vocabularies_differ"), _ids_shifted, "lm-sys/FastChat#153"),
    seeded("chat_template_broken", ("bad_chat_template",), _template_broken, "containers/ramalama#1857",
           LANGUAGE_MODEL),
)  # fmt: skip
