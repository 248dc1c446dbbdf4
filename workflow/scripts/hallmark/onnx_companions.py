"""What lies beside an ONNX graph: tokenizer, configuration, pooling; and the checkpoint as a converter wants to see it.

For the ONNX toolchains. It copies and adapts small files, and touches neither weights nor graphs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hallmark import sentence_modules

# Files that a runner, or a person who loads the folder, needs. A tokenizer's other files are for making tokenizer.json.
NAMES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip
RUNNABLE_MODULES = ("Transformer", "Pooling", "Normalize")
LONGEST = 1 << 31  # transformers writes 10^30 for "no limit", which other readers of JSON cannot hold


def read_json(path: Path) -> Any:
    """The file's content; an empty dict where there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def copy(source: Path, out: Path) -> None:
    """Put the checkpoint's small files into the folder `out`, byte for byte but for an endless `model_max_length`.

    A checkpoint without tokenizer.json gets one from transformers. Raises ValueError for modules that cannot be run.
    """
    for name in NAMES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    for module in read_json(source / "modules.json") or ():
        if module["type"].rpartition(".")[2] not in RUNNABLE_MODULES:
            raise ValueError(
                f"{source / 'modules.json'}: cannot carry {module['type']}, only {', '.join(RUNNABLE_MODULES)}"
            )
        config = source / module["path"] / "config.json"
        if module["path"] and config.is_file():
            (out / module["path"]).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(config, out / module["path"] / "config.json")
    if not (out / "tokenizer.json").is_file():
        _make_tokenizer(source, out / "tokenizer.json")
    _bound_length(source, out / "tokenizer_config.json")


def state_longest_input(source: Path, out: Path) -> None:
    """Write how many tokens an encoder's input is cut to where its reader looks for it; the source may not say so."""
    path, longest = out / "sentence_bert_config.json", sentence_modules.longest_input(source)
    settings = read_json(path)
    if settings.get("max_seq_length") != longest:
        path.write_text(json.dumps({**settings, "max_seq_length": longest}, indent=2), encoding="utf-8")


def _make_tokenizer(source: Path, path: Path) -> None:
    from transformers import AutoTokenizer

    # What transformers 5, and so the reference, takes where the checkpoint says nothing; version 4 would take True.
    legacy = read_json(source / "tokenizer_config.json").get("legacy", False)
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True, legacy=legacy)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"{source}: has no tokenizer.json, and {type(tokenizer).__name__} cannot be written as one")
    backend.save(str(path))


def _bound_length(source: Path, path: Path) -> None:
    """Runtimes written in C++ read `model_max_length` as an integer: 10^30 becomes the model's number of positions."""
    config = read_json(path)
    if config.get("model_max_length", 0) > LONGEST:
        config["model_max_length"] = read_json(source / "config.json").get("max_position_embeddings", LONGEST)
        path.write_text(json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True), encoding="utf-8")


def stage(source: Path, scratch: Path) -> Path:
    """The checkpoint as transformers 4 reads it, a folder of links with its own config.json, in the folder `scratch`.

    Transformers 5 writes rotary settings to `rope_parameters`; version 4 ignores that key and takes its defaults: a
    model that loads, answers, and is wrong.
    """
    staged = scratch / "checkpoint"
    staged.mkdir()
    for path in source.iterdir():
        if path.name != "config.json":
            (staged / path.name).symlink_to(path.resolve())
    config = readable_by_transformers_4(read_json(source / "config.json"))
    (staged / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return staged


def readable_by_transformers_4(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with its rotary settings under the names of transformers 4: `rope_theta`, `rope_scaling`."""
    made = dict(config)
    settings = made.get("rope_parameters")
    if not isinstance(settings, dict):
        return made
    del made["rope_parameters"]
    if "full_attention" in settings:  # one set for each kind of layer, as in Gemma 3
        local = settings.get("sliding_attention", {})
        if local.get("rope_type", "default") != "default":
            raise ValueError(f"config.json: rope type {local['rope_type']} of sliding attention cannot be carried")
        if "rope_theta" in local:
            made.setdefault("rope_local_base_freq", local["rope_theta"])
        settings = settings["full_attention"]
    if "rope_theta" in settings:
        made.setdefault("rope_theta", settings["rope_theta"])
    if "partial_rotary_factor" in settings:
        made.setdefault("partial_rotary_factor", settings["partial_rotary_factor"])
    if settings.get("rope_type", "default") != "default":
        kept = {key: value for key, value in settings.items() if key not in ("rope_theta", "partial_rotary_factor")}
        made.setdefault("rope_scaling", kept)
    return made
