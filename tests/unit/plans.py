"""What tests of the plan and of what works on it share: a small configuration, and a lock made in code."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from hallmark import config, lock, planner, sources, store
from hallmark.node import Node
from hallmark.plan import Plan

CONFIG: dict[str, Any] = {
    "models": {
        "tiny": {
            "source": {"kind": "path", "folder": "source"},
            "task": "causal-lm",
            "evaluation": "text",
            "calibration": "other",
            "formats": {"gguf": ["f16", "q8_0", "q4_k_m_imatrix"], "onnx": ["fp32", "int8_dynamic"]},
        }
    },
    "data": {
        "text": {"source": {"kind": "path", "folder": "data"}, "reader": "text"},
        "other": {"source": {"kind": "path", "folder": "more"}, "reader": "text"},
    },
    "targets_file": "targets.yaml",
    "hardware_class": "a test",
}
QUESTIONS = {"source": {"kind": "path", "folder": "asked", "files": ["*.jsonl"]}, "reader": "multiple_choice"}
TARGETS: dict[str, Any] = {
    "targets": {
        "cpu-llamacpp": {"candidates": ["gguf/q8_0", "gguf/f16"]},
        "cpu-onnx": {"candidates": ["onnx/int8_dynamic"]},
    },
    "policies": {"default": {"causal-lm": {"*/*/*": {"kl_mean": {"max": 0.5}, "decode_ratio": {"min": 1.0}}}}},
}
FACTS = {"architecture": "LlamaForCausalLM", "parameters": 1_000_000, "largest": 100_000, "vocab_size": 512}


def edited(tree: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one place set; `path` is dotted."""
    fresh = copy.deepcopy(tree)
    *parents, last = path.split(".")
    place = fresh
    for name in parents:
        place = place[name]
    place[last] = value
    return fresh


def asked(raw: dict[str, Any] = CONFIG) -> dict[str, Any]:
    """The configuration with labelled questions for its model."""
    fresh = edited(raw, "models.tiny.multiple_choice", "questions")
    fresh["data"]["questions"] = QUESTIONS
    return fresh


def locked(raw: dict[str, Any], weights: str = "a", card: str = "b", text: str = "c") -> lock.Lock:
    """A lock of every source of a configuration; the letters stand for the files' content."""

    def pins(**files: str) -> dict[str, Any]:
        return {name.replace("_", "."): {"size": 10, "sha256": 64 * letter} for name, letter in files.items()}

    def entry(item: dict[str, Any], facts: dict[str, Any], files: dict[str, Any]) -> lock.Entry:
        return lock.Entry(source=sources.parse(item["source"]), facts=facts, files=files)

    models = {
        name: entry(item, FACTS, pins(model_safetensors=weights, README_md=card))
        for name, item in raw["models"].items()
    }
    data = {name: entry(item, {}, pins(page_txt=text)) for name, item in raw["data"].items()}
    return lock.Lock(models=models, data=data)


def planned(raw: dict[str, Any] = CONFIG, targets: dict[str, Any] = TARGETS, pins: lock.Lock | None = None) -> Plan:
    """The plan of a configuration in the working folder, where its targets file is written."""
    Path("targets.yaml").write_text(yaml.safe_dump(targets), encoding="utf-8")
    return planner.Planner(config.parse(raw, "config.yaml"), pins or locked(raw)).plan()


def encoders(loadgen: dict[str, Any] | None = None) -> Plan:
    """The plan of a sentence encoder, which LoadGen may drive, in the working folder."""
    raw = edited(CONFIG, "models.tiny.task", "sentence-similarity")
    raw = edited(edited(raw, "models.tiny.formats", {"gguf": ["q8_0"]}), "data.text.reader", "rated_pairs")
    raw = raw if loadgen is None else edited(raw, "models.tiny.loadgen", loadgen)
    limits = {"sentence-similarity": {"*/*/*": {"cosine_mean": {"min": 0.9}}}}
    targets = {"targets": {"cpu-llamacpp": {"candidates": ["gguf/q8_0"]}}, "policies": {"default": limits}}
    pins = locked(raw)
    entry = pins.models["tiny"].model_copy(update={"facts": {"architecture": "BertModel"}})
    return planned(raw, targets, pins.model_copy(update={"models": {"tiny": entry}}))


def keys(plan: Plan) -> dict[str, str]:
    """`verb subject` -> key."""
    return {f"{node.verb} {node.name}": node.key for node in plan.nodes()}


def changed(before: Plan, after: Plan) -> set[str]:
    """`verb subject` of all that has another key, or is new."""
    old = keys(before)
    return {name for name, key in keys(after).items() if old.get(name) != key}


def build(plan: Plan, node: Node, content: dict[str, str] | None = None) -> Path:
    """Write an entry for a node, as its job would, and return its folder."""
    place = plan.root / node.place
    made = {role: store.read(plan.root / other.place).digest for role, other in node.inputs.items()
            if (plan.root / other.place).exists()}  # fmt: skip
    header = {"verb": node.verb, "key": node.key, "components": node.components, "inputs": made}
    with store.writing(plan.root, place, header) as draft:
        for name, text in (content or {"file.txt": node.place}).items():
            (draft.files / name).write_text(text, encoding="utf-8")
    return place
