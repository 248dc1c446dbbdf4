"""What lint can find: every code with its level and remedy, and the errors that refuse a checkpoint or a conversion.

`python -m hallmark.schema` writes SUBJECTS into docs/lint.md. Nothing is looked for here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

SHOWN = 20  # names in a message

FLOAT16 = "float16"  # traits that a checkpoint may ask of a format; rotary scaling is `rope:` and its kind
REMOTE_CODE = "remote code"
ROPE = "rope:"


class LintError(Exception):
    """A checkpoint, or one artifact of it, must not be converted. The text has a line for each reason."""


@dataclass(frozen=True)
class Code:
    """A kind of finding: how bad it is, what is wrong, and what to do about it."""

    level: Literal["error", "warning"]
    meaning: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: how bad, a word for programs, the file or tensor, what is wrong, what to do.

    An error with a `trait` refuses only the artifacts of formats and variants that cannot carry that trait.
    """

    level: Literal["error", "warning"]
    code: str
    place: str
    message: str
    remedy: str
    trait: str = ""


AGAIN = "bring the file again"
SUBJECTS: Mapping[str, Mapping[str, Code]] = {
    "files": {
        "no_config": Code("error", "config.json is missing", "a checkpoint in Hugging Face's form is needed"),
        "not_json": Code("error", "a JSON file cannot be read as UTF-8 JSON with an object in it", "put it right"),
        "no_architecture": Code("error", "config.json names no architecture", "add `architectures` to it"),
        "no_weights": Code("error", "there are no weights", "add model.safetensors, or shards with their index"),
        "only_pickles": Code(
            "error",
            "the weights are pickles, which run code when they are loaded; the imports found in them are named",
            "save the model with safetensors where you trust it",
        ),
        "dangerous_pickle": Code(
            "error",
            "a pickle imports what can run commands, read files or reach the network; it was scanned, not loaded",
            "do not load it anywhere; take the weights from a source you trust",
        ),
        "unreadable_pickle": Code("warning", "a file with a pickle's name could not be scanned", "remove it"),
        "bad_header": Code("error", "a file is no safetensors file, or its header is broken", AGAIN),
        "truncated": Code("error", "a file ends before its last tensor does", AGAIN),
        "too_long": Code("error", "a file has bytes after its last tensor", AGAIN),
        "no_tensors": Code("error", "a file holds no tensors", AGAIN),
        "doubled_tensor": Code("error", "a header has the same tensor twice", "save the file again"),
        "overlap": Code("error", "two tensors of a file share bytes", "save the file again"),
        "gap": Code("error", "bytes of a file belong to no tensor", "save the file again"),
        "wrong_length": Code("error", "a tensor's bytes do not fit its shape and type", "save the file again"),
        "unknown_type": Code("error", "a tensor's type is not one of the safetensors format's", "save the file again"),
        "empty_tensor": Code(
            "error",
            "a tensor has no elements, as when the shards of DeepSpeed ZeRO-3 or FSDP were not gathered",
            "gather the weights and save them again (DeepSpeed: zero_to_fp32.py)",
        ),
        "missing_shard": Code("error", "a shard that the index or the other shards' names speak of is missing", AGAIN),
        "no_index": Code("error", "shards without an index, which transformers does not load", "add the index"),
        "missing_tensor": Code("error", "the index has a tensor in a file that has it not", "bring both again"),
        "index_lacks_tensor": Code("error", "a file has a tensor that the index has not", "bring both again"),
        "file_not_in_index": Code("error", "the index speaks of none of a file's tensors", "remove one of the two"),
        "two_weight_sets": Code(
            "error",
            "tensors are in two files, and each reader takes its own choice",
            "remove the set that is not wanted",
        ),
        "other_name": Code("error", "weights under a name that no loader looks for", "call the file model.safetensors"),
        "unmerged_adapter": Code(
            "error", "an adapter (LoRA and the like) is not merged", "merge it into the weights first"
        ),
        "training_prefix": Code(
            "error",
            "every tensor's name begins with what a training wrapper puts there, so no loader finds it",
            "save the model that is inside the wrapper",
        ),
        "quantised_source": Code(
            "error",
            "the weights are quantised already (GPTQ, AWQ, FP8, bitsandbytes and the like)",
            "take the float checkpoint it was made from: there is nothing to measure a conversion against",
        ),
    },
    "config": {
        "remote_code": Code(
            "error",
            "the checkpoint brings Python code of its own, which its loader would run",
            "read the code; then set `allow_remote_code: true` for the model and lock it again",
        ),
        "remote_code_missing": Code(
            "error",
            "remote code is allowed, but a file with it is not there",
            "lock the model again, which brings *.py too, or add them to its `files`",
        ),
        "remote_code_elsewhere": Code(
            "error",
            "remote code is allowed, but it lies in another repository, which nothing pins",
            "copy its files into the checkpoint and drop the repository's name from `auto_map`",
        ),
        "remote_code_not_run": Code(
            "error",
            "remote code is allowed, but the exporters of some formats do not run it",
            "build a format that can, or drop the model",
        ),
        "unknown_rope": Code(
            "error", "a kind of rotary scaling that transformers does not know", "put config.json right"
        ),
        "rope_not_carried": Code(
            "error",
            "a kind of rotary scaling that some formats drop or freeze without a word",
            "build a format that can",
        ),
        "token_id_beyond_rows": Code(
            "error",
            "a token id in config.json or generation_config.json has no row in the embedding",
            "put the id right",
        ),
    },
    "tokenizer": {
        "no_tokenizer": Code("error", "there is no tokenizer file", "add the tokenizer's files"),
        "bad_tokenizer": Code("error", "a tokenizer file is not what its name says", AGAIN),
        "tokens_beyond_rows": Code(
            "error",
            "the vocabulary has more tokens than the embedding has rows",
            "take the tokenizer that belongs to the weights, or resize the embedding",
        ),
        "special_token_beyond_rows": Code(
            "error",
            "a special token (pad, end, ...) has no row in the embedding",
            "resize the embedding, or use a token that has a row",
        ),
        "added_token_beyond_rows": Code(
            "warning", "an added token that no role uses has no row in the embedding", "remove it; text with it fails"
        ),
        "special_token_unknown": Code(
            "warning", "a special token is not in the vocabulary, so it is added behind it", "put its spelling right"
        ),
        "stop_token_differs": Code(
            "warning",
            "the tokenizer's end token is none of those that config.json and generation_config.json stop at",
            "add it to generation_config.json's `eos_token_id`",
        ),
        "vocabularies_differ": Code(
            "error",
            "tokenizer.json and vocab.txt or vocab.json are of different vocabularies, and each reader takes its own",
            "bring both again, or remove the one that does not belong to the weights",
        ),
        "bad_chat_template": Code(
            "error", "a chat template is no Jinja that can be parsed, so no conversation can be put", "put it right"
        ),
        "token_ids_conflict": Code(
            "warning", "two files give a token different ids, or two tokens the same", "bring both again"
        ),
    },
    "values": {
        "non_finite": Code(
            "error", "a tensor holds NaN or infinite values", "take a checkpoint from before they appeared"
        ),
        "beyond_float16": Code(
            "error",
            "a tensor holds values that float16 has not (beyond 65504), which become infinite there",
            "build another variant",
        ),
        "all_zero": Code("warning", "every value of a matrix is zero", "check that it was trained and saved"),
        "tied_but_different": Code(
            "warning",
            "the config ties two tensors that the files hold separately, with different values",
            "set `tie_word_embeddings: false`, or remove the one that is not wanted",
        ),
    },
    "class": {
        "missing": Code(
            "error",
            "tensors that the model class needs are not in the files; transformers fills them in at random",
            "bring the whole checkpoint, or put config.json right",
        ),
        "incomplete": Code(
            "error",
            "tensors that the class merges (experts, projections) do not fit together, as when one of them is missing",
            "bring the whole checkpoint",
        ),
        "surplus": Code(
            "warning", "tensors that the model class has no place for, nor says that it ignores", "check config.json"
        ),
        "surplus_layers": Code(
            "error",
            "whole layers that the config does not count, so that they would be left out",
            "put the number of layers in config.json right",
        ),
        "shape_differs": Code(
            "error", "a tensor's shape is not the one that the config asks for", "put config.json right"
        ),
        "cannot_build": Code(
            "error",
            "transformers cannot build the model from its config",
            "put config.json right, or use another model",
        ),
    },
}
CODES: Mapping[str, Code] = {name: code for codes in SUBJECTS.values() for name, code in codes.items()}


def found(code: str, place: str, message: str, remedy: str = "", trait: str = "") -> Finding:
    """A finding of a known code; with a remedy of its own, or that of the code."""
    known = CODES[code]
    return Finding(known.level, code, place, message, remedy or known.remedy, trait)


def some(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in findings]


def line(finding: Mapping[str, Any]) -> str:
    """A finding in one line, for a log."""
    return f"{finding['place']}: {finding['message']}; {finding['remedy']} [{finding['code']}]"


def errors(report: Mapping[str, Any], traits: Iterable[str] = ()) -> list[Mapping[str, Any]]:
    """The errors of a report that refuse the whole checkpoint, or with `traits` those of these traits alone."""
    wanted = set(traits) or {""}
    return [item for item in report["findings"] if item["level"] == "error" and item["trait"] in wanted]


def refuse(subject: str, report: Mapping[str, Any]) -> None:
    """Raise LintError when a report has errors that are not of some formats alone."""
    if found := errors(report):
        raise LintError("\n".join(f"{subject}: {line(finding)}" for finding in found))
