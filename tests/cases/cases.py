"""Checkpoints, sound and broken: one for each thing that is known to go wrong, and what Hallmark has to say of it.

CASES is the one list of them. Tests of lint read `codes`, `class_codes` (for which the model class is asked, in a
toolchain) and `lost`; `inspect` says what only an artifact can show.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.cases.checkpoints import (
    HIDDEN,
    INDEX,
    VOCABULARY,
    Parts,
    bfloat16,
    llama,
    parts,
    safetensors,
    tensor,
    write,
    write_index,
)  # fmt: skip

UP = "model.layers.1.mlp.up_proj.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"
FLOAT16_ARTIFACTS = ("gguf/f16", "openvino/fp16")  # of a language model


@dataclass(frozen=True)
class Case:
    """How one checkpoint is made, and what is wanted.

    `change` edits the parts before they are written, `damage` the folder afterwards. `codes` are lint's findings that
    the headers, values and pickles give; `class_codes` those that the model class adds; `lost` are artifacts that must
    be refused for it while others are made; `inspect` is left to the inspection of an artifact.
    """

    change: Callable[[Parts], object] = lambda parts: None
    damage: Callable[[Path], object] = lambda folder: None
    codes: tuple[str, ...] = ()
    class_codes: tuple[str, ...] = ()
    place: str = ""  # what the first finding has to name
    lost: tuple[str, ...] = ()
    inspect: str = ""


def make(name: str, folder: Path) -> Path:
    """Write the checkpoint of a case into a new folder below `folder`, and return it."""
    case, out = CASES[name], folder / name
    made = parts()
    case.change(made)
    write(out, made)
    case.damage(out)
    return out


def sharded(made: Parts) -> None:
    made.shards = 2


def rows(count: int, config: int | None = None) -> Callable[[Parts], object]:
    def change(made: Parts) -> None:
        made.tensors, made.config["vocab_size"] = llama(count), config or count

    return change


def rope(kind: str, **more: Any) -> Callable[[Parts], object]:
    settings = {"rope_type": kind, "type": kind, "factor": 2.0, **more}
    return lambda made: made.config.update(rope_scaling=settings)


def with_value(name: str, *values: float) -> Callable[[Parts], object]:
    """Put values at the start of a tensor."""

    def change(made: Parts) -> None:
        dtype, shape, data = made.tensors[name]
        first = bfloat16(np.array(values, np.float32))
        made.tensors[name] = dtype, shape, first + data[len(first) :]

    return change


def tied(made: Parts) -> None:
    made.config["tie_word_embeddings"] = True
    del made.tensors["lm_head.weight"]


def second_set(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(safetensors(llama()))


def edit_index(change: Callable[[dict[str, str]], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        mapping = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        change(mapping)
        write_index(folder, mapping)

    return damage


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])


class _Trap:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch PICKLE_WAS_LOADED",)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": _Trap()}))


def with_adapter(made: Parts) -> None:
    made.documents["adapter_config.json"] = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    made.files["adapter_model.safetensors"] = safetensors({name: tensor((4, HIDDEN), 9)})


def with_code(made: Parts) -> None:
    made.config["auto_map"] = {"AutoModelForCausalLM": "modeling_x.X"}
    made.files["modeling_x.py"] = b"raise SystemExit('remote code ran')\n"


def without_tokenizer(made: Parts) -> None:
    made.documents.clear()


def _remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
TEMPLATE = b"{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
CASES: Mapping[str, Case] = {
    "sound": Case(),
    "sound_tied": Case(tied),
    "sound_sharded": Case(sharded),
    "sound_no_bos": Case(
        lambda made: made.documents["tokenizer_config.json"].update(add_bos_token=False),
        inspect="the flag is in the artifact",
    ),
    "sound_chat_template_file": Case(
        lambda made: made.files.update({"chat_template.jinja": TEMPLATE}),
        inspect="the template in the artifact is the same text",
    ),
    "sound_yarn": Case(
        rope("yarn", original_max_position_embeddings=64),
        codes=("rope_not_carried",),
        lost=("onnx/int4", "onnx/int8"),
        inspect="the rope keys are in the artifact",
    ),
    "missing_shard_no_index": Case(
        lambda made: (sharded(made), setattr(made, "indexed", False)),
        _remove(SHARDS[1]),
        codes=("missing_shard", "no_index"),
        class_codes=("missing",),
        place=SHARDS[1],
    ),
    "missing_shard": Case(
        sharded, _remove(SHARDS[1]), codes=("missing_shard",), class_codes=("missing",), place=SHARDS[1]
    ),
    "index_lacks_key": Case(
        sharded,
        edit_index(lambda mapping: mapping.pop("model.norm.weight")),
        codes=("index_lacks_tensor",),
        place="model.norm.weight",
    ),
    "old_file_beside_shards": Case(
        sharded,
        second_set,
        codes=("two_weight_sets", "two_weight_sets"),
        place=f"{SHARDS[0]} and model.safetensors",
    ),
    "fewer_tensors_than_layers": Case(
        lambda made: made.config.update(num_hidden_layers=3),
        class_codes=("missing",),
        place="model.layers.2.input_layernorm.weight",
    ),
    "dropped_tensor": Case(lambda made: made.tensors.pop(DOWN), class_codes=("missing",), place=DOWN),
    "tied_flag_with_separate_head": Case(
        lambda made: made.config.update(tie_word_embeddings=True),
        class_codes=("tied_but_different",),
        place="lm_head.weight",
        inspect="artifact and reference agree",
    ),
    "untied_flag_without_head": Case(
        lambda made: made.tensors.pop("lm_head.weight"), class_codes=("missing",), place="lm_head.weight"
    ),
    "rope_dynamic": Case(
        rope("dynamic"),
        codes=("rope_not_carried",),
        lost=(
            *("gguf/f16", "gguf/q4_k_m", "gguf/q4_k_m_imatrix", "gguf/q5_k_m", "gguf/q5_k_m_imatrix", "gguf/q6_k"),
            *("gguf/q8_0", "onnx/fp32", "onnx/int4", "onnx/int8", "onnx/int8_dynamic"),
            *("openvino/fp16", "openvino/int4", "openvino/int4_awq", "openvino/int8"),
        ),
    ),
    "rope_invented": Case(rope("foo"), codes=("unknown_rope",), place="config.json"),
    "eos_list": Case(
        lambda made: made.documents.update({"generation_config.json": {"bos_token_id": 1, "eos_token_id": [2, 5]}}),
        inspect="the second stop token is in the artifact",
    ),
    "vocab_rows_short": Case(rows(500), codes=("tokens_beyond_rows",), place="tokenizer.json"),
    "vocab_config_long": Case(
        rows(VOCABULARY, 520), class_codes=("shape_differs", "shape_differs"), place="lm_head.weight"
    ),
    "vocab_rows_padded": Case(rows(520), inspect="token ids agree with the source's tokenizer"),
    "non_finite": Case(with_value(UP, math.nan, math.inf), codes=("non_finite",), place=UP),
    "beyond_fp16": Case(with_value(UP, 1e5), codes=("beyond_float16",), place=UP, lost=FLOAT16_ARTIFACTS),
    "unmerged_adapter": Case(with_adapter, codes=("unmerged_adapter",), place="adapter_config.json"),
    "pickle_only": Case(damage=pickled, codes=("only_pickles", "dangerous_pickle"), place="pytorch_model.bin"),
    "truncated": Case(damage=cut, codes=("truncated",), place="model.safetensors"),
    "no_tokenizer": Case(without_tokenizer, codes=("no_tokenizer",), place="tokenizer.json"),
    "remote_code": Case(with_code, codes=("remote_code",), place="config.json"),
}
