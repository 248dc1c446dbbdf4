"""ONNX: the recipes, and what each leaves behind. optimum, ONNX Runtime's quantiser and onnxruntime-genai do the work.

Float graphs are exported by optimum, a language model's with its key-value cache as inputs and outputs; int8_dynamic
is made from the float32 graph. A language model's int8 and int4 come from onnxruntime-genai's builder, and run there.
Measured on SmolLM2-135M against the float32 source: dynamic int8 loses too much of a language model (KL 0.54 nat), the
builder's int8 does not (0.005); int4 with the more sensitive weights in int8 is between (0.19).
The checkpoint's small files (tokenizer, configuration, pooling) are carried along, so a folder runs by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hallmark import onnx_census, onnx_companions, onnx_file
from hallmark.formats import Inspection, Memory, Spec, Usage, Variant
from hallmark.onnx_architectures import BUILT_LANGUAGE_MODELS, ENCODERS, EXPORTED_LANGUAGE_MODELS

FILE = "model.onnx"
EXPORT, DYNAMIC, BUILD = "export", "dynamic", "build"
PROGRAMS = Path(__file__).parent.parent / "run"
PROMPT, SENTENCE = "What is the capital of France?", "A man is playing a guitar."
SHARED_REQUIREMENTS = ("tokenizers==0.22.2", "numpy==2.4.6")
_COMMON = (FILE, "tokenizer.json", "config.json")


def _built(**options: Any) -> Variant:
    return Variant(
        {"method": BUILD, "block_size": 32, "accuracy_level": 4, **options},
        tasks=("causal-lm",),
        toolchain="onnx_genai",
        files=(*_COMMON, "model.onnx.data", "genai_config.json"),
    )


SPEC = Spec(
    name="onnx",
    title="ONNX for ONNX Runtime",
    toolchain="onnx",
    variants={
        "fp32": Variant({"method": EXPORT, "precision": "fp32"}),
        "fp16": Variant({"method": EXPORT, "precision": "fp16"}, tasks=("sentence-similarity",)),
        "int8_dynamic": Variant({"method": DYNAMIC, "per_channel": True}, needs=("fp32",)),
        "int8": _built(bits=8, algorithm="default", symmetric=True, mixed=[]),
        "int4": _built(bits=4, algorithm="rtn", symmetric=False, mixed=["last_matmul", "mixed_layers"]),
    },
    files={"causal-lm": _COMMON, "sentence-similarity": _COMMON},
    architectures={"causal-lm": EXPORTED_LANGUAGE_MODELS | BUILT_LANGUAGE_MODELS, "sentence-similarity": ENCODERS},
    memory=Memory(base=400_000_000, per_weight_byte=5.2),
    code=(
        "hallmark.onnx_census",
        "hallmark.onnx_companions",
        "hallmark.onnx_export",
        "hallmark.onnx_file",
        "hallmark.onnx_genai",
    ),
    runtime=("hallmark.run.onnx_encode", "hallmark.run.onnx_generate"),
)


def convert(inputs: Mapping[str, Path], out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the graph and the checkpoint's small files into the folder `out`; returns what was done, and the types.

    Options: `method`, and those of `onnx_export.export`, `onnx_export.quantise_dynamic` or `onnx_genai.build`. Raises
    ValueError for a checkpoint that cannot be carried and for a graph that is not what was asked for.
    """
    from hallmark import onnx_export, onnx_genai

    source, method = inputs["source"], options["method"]
    task = _task_of(source, method)
    if method == BUILD:
        return onnx_genai.build(source, out, options)
    onnx_companions.copy(source, out)
    if method == DYNAMIC:
        return onnx_export.quantise_dynamic(inputs["fp32"] / FILE, out, options)
    return onnx_export.export(source, out, task, str(options["precision"]), int(options["threads"]))


def _task_of(source: Path, method: str) -> str:
    """What the checkpoint is for, by its own files. Raises ValueError for an architecture beyond the method."""
    names = onnx_companions.read_json(source / "config.json").get("architectures") or ["none"]
    if method != BUILD and ((source / "modules.json").is_file() or ENCODERS.intersection(names)):
        return "sentence-similarity"
    carried = BUILT_LANGUAGE_MODELS if method == BUILD else EXPORTED_LANGUAGE_MODELS
    if not carried.intersection(names):
        tool = "onnxruntime-genai's builder" if method == BUILD else "optimum's exporter"
        raise ValueError(
            f"{source / 'config.json'}: {', '.join(names)} is not what {tool} carries; use another variant or format"
        )
    return "causal-lm"


def inspect(files: Path) -> Inspection:
    """The graph's own account of itself, and a look at every floating-point number in it."""
    file = onnx_file.read(files / FILE)
    weights = onnx_census.weights(file)
    broken = onnx_census.nonfinite(file.tensors)
    parameters = sum(weight.elements for weight in weights)
    stored = sum(tensor.length for tensor in file.tensors)
    metrics: dict[str, float] = {
        "tensors": len(file.tensors),
        "parameters": parameters,
        "bits_per_weight": 8 * stored / parameters if parameters else 0.0,
        "nonfinite": sum(broken.values()),
        "opset": file.opsets.get("", 0),
    }
    logits = next((value for value in file.outputs if value.name == "logits"), None)
    if logits is not None and isinstance(logits.dims[-1], int):
        metrics["vocab_size"] = logits.dims[-1]
    graph = {
        "types": onnx_census.histogram(weights),
        "operations": onnx_census.operations(file),
        "padded": onnx_census.padded(file),
        "nonfinite_in": broken,
    }
    return Inspection(metrics, {**_shape_facts(file), **graph, **_text_facts(files)})


def _shape_facts(file: onnx_file.OnnxFile) -> dict[str, Any]:
    """Producer, operator sets, ports with their free dimensions, and the data files beside the graph."""
    values = [*file.inputs, *file.outputs]
    return {
        "producer": file.producer,
        "opsets": {domain or "ai.onnx": version for domain, version in sorted(file.opsets.items())},
        "inputs": {value.name: [value.type, *value.dims] for value in file.inputs},
        "outputs": {value.name: [value.type, *value.dims] for value in file.outputs},
        "free_dimensions": sorted({size for value in values for size in value.dims if isinstance(size, str)}),
        "external_data": file.external,
    }


def _text_facts(files: Path) -> dict[str, Any]:
    """Special tokens and chat template, from the tokenizer's files and the generation settings."""
    read = onnx_companions.read_json
    config, added = read(files / "tokenizer_config.json"), read(files / "tokenizer.json").get("added_tokens", [])
    ids = {token["content"]: token["id"] for token in added if token["special"]}
    roles = {}
    for role in ("bos", "eos", "unk", "pad", "cls", "sep", "mask"):
        token = config.get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if text:
            roles[role] = ids.get(text)
    stops = {name: read(files / name).get("eos_token_id") for name in ("config.json", "generation_config.json")}
    stops["genai_config.json"] = read(files / "genai_config.json").get("model", {}).get("eos_token_id")
    file = files / "chat_template.jinja"
    template = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template") or ""
    template = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return {
        "special_tokens": ids,
        "special_token_ids": roles,
        "stop_tokens": {name: found for name, found in stops.items() if found is not None},
        "chat_template": {
            "characters": len(template),
            "sha256": hashlib.sha256(template.encode()).hexdigest() if template else None,
        },
    }


@contextmanager
def open(files: Path, task: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """A runner with `options["threads"]` threads: the very program that goes into a bundle, imported."""
    from hallmark.run import onnx_encode, onnx_generate

    threads = int(options["threads"])
    if task == "causal-lm":
        yield onnx_generate.open_decoder(files, threads)
    else:
        encoder = onnx_encode.Encoder(files, threads)
        encoder.unit_length = True  # the task compares directions, whatever the model's modules say
        yield encoder


def usage(task: str, options: Mapping[str, Any]) -> Usage:
    """A program of a page: an answer, or embeddings as JSON."""
    if task == "causal-lm":
        name, text, needed = "onnx_generate.py", PROMPT, ["jinja2==3.1.6"]
    else:
        name, text, needed = "onnx_encode.py", SENTENCE, []
    runtimes = ["onnxruntime==1.32.0"] + (["onnxruntime-genai==0.18.0"] if options["method"] == BUILD else [])
    program = (PROGRAMS / name).read_text(encoding="utf-8")
    return Usage(f'python {{folder}}/run.py "{text}"', (*runtimes, *SHARED_REQUIREMENTS, *needed), {"run.py": program})
