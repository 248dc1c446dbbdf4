"""ONNX: the recipes, and what each leaves behind. optimum, ONNX Runtime's quantiser and onnxruntime-genai do the work.

Float graphs are exported by optimum, a language model's with its key-value cache as inputs and outputs; int8_dynamic
is made from the float32 graph. A language model's int8 and int4 come from onnxruntime-genai's builder, and run there.
Measured on SmolLM2-135M against the float32 source: dynamic int8 loses too much of a language model (KL 0.54 nat), the
builder's int8 does not (0.005); int4 with the more sensitive weights in int8 is between (0.19).
The checkpoint's small files (tokenizer, configuration, pooling) are carried along, so a folder runs by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hallmark import onnx_companions
from hallmark.formats import INSPECTION, Inspection, Memory, Spec, Usage, Variant
from hallmark.onnx_architectures import (
    BUILT_LANGUAGE_MODELS,
    BUILT_ROPE,
    ENCODERS,
    EXPORTED_LANGUAGE_MODELS,
    EXPORTED_ROPE,
)
from hallmark.options import Setting

FILE = "model.onnx"
EXPORT, DYNAMIC, BUILD = "export", "dynamic", "build"
EXPORTED = ("method", "precision")  # options that make an export what it is
PROGRAMS = Path(__file__).parent.parent / "run"
PROMPT, SENTENCE = "What is the capital of France?", "A man is playing a guitar."
SHARED_REQUIREMENTS = ("tokenizers==0.22.2", "numpy==2.4.6")
_COMMON = (FILE, "tokenizer.json", "config.json")


QUANTISER = Memory(base=420_000_000, per_weight_byte=4.5)  # of both quantisers


def _built(**options: Any) -> Variant:
    return Variant(
        {"method": BUILD, "block_size": 32, "accuracy_level": 4, **options},
        fixed=("method", "bits"),
        tasks=("causal-lm",),
        toolchain="onnx_genai",
        files=(*_COMMON, "model.onnx.data", "genai_config.json"),
        memory=QUANTISER,
        rope=BUILT_ROPE,
    )


SPEC = Spec(
    name="onnx",
    title="ONNX for ONNX Runtime",
    toolchain="onnx",
    variants={
        "fp32": Variant({"method": EXPORT, "precision": "fp32"}, EXPORTED),
        "fp16": Variant({"method": EXPORT, "precision": "fp16"}, EXPORTED, tasks=("sentence-similarity",)),
        "int8_dynamic": Variant(
            {"method": DYNAMIC, "per_channel": True}, ("method",), needs=("fp32",), memory=QUANTISER
        ),
        "int8": _built(bits=8, algorithm="default", symmetric=True, mixed=[]),
        "int4": _built(bits=4, algorithm="rtn", symmetric=False, mixed=["last_matmul", "mixed_layers"]),
    },
    files={"causal-lm": _COMMON, "sentence-similarity": _COMMON},
    architectures={"causal-lm": EXPORTED_LANGUAGE_MODELS | BUILT_LANGUAGE_MODELS, "sentence-similarity": ENCODERS},
    memory=Memory(base=450_000_000, per_weight_byte=6.0),  # of the export
    rope=EXPORTED_ROPE,
    float16={"precision": "fp16"},
    settings={
        "per_channel": Setting("a scale for each output column, or one for each weight"),
        "block_size": Setting(
            "columns that share a scale, less where a weight's do not divide", (16, 32, 64, 128, 256)
        ),
        "algorithm": Setting("how onnxruntime-genai's builder rounds", ("default", "rtn", "k_quant")),
        "symmetric": Setting("without zero points, or with"),
        "mixed": Setting("groups of weights that get 8 bits", ("last_matmul", "mixed_layers")),
        "accuracy_level": Setting("what activations are computed in: 4 int8, 1 float32", (1, 4)),
    },
    code=(
        "hallmark.onnx_census",
        "hallmark.onnx_companions",
        "hallmark.onnx_export",
        "hallmark.onnx_file",
        "hallmark.onnx_genai",
        "hallmark.sentence_modules",
    ),
    runtime=(
        "hallmark.onnx_runtime",
        "hallmark.padded_batch",
        "hallmark.run.onnx_encode",
        "hallmark.run.onnx_generate",
    ),
    inspection=(
        "hallmark.carried_files",
        "hallmark.onnx_census",
        "hallmark.onnx_file",
        "hallmark.onnx_inspection",
        "hallmark.onnx_weights",
        "hallmark.pairing",
        "hallmark.rescaled",
        "hallmark.rope_table",
        *INSPECTION,
    ),
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
    if task == "sentence-similarity":
        onnx_companions.state_longest_input(source, out)
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


def inspect(files: Path, source: Path, task: str, options: Mapping[str, Any]) -> Inspection:
    """The graph and the files beside it against their source: see `onnx_inspection`."""
    from hallmark import onnx_inspection

    return onnx_inspection.inspect(files, source, options)


@contextmanager
def open(files: Path, task: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """A runner with `options["threads"]` threads: the very program that goes into a bundle, imported."""
    from hallmark import onnx_runtime
    from hallmark.run import onnx_generate

    open_runner = onnx_generate.open_decoder if task == "causal-lm" else onnx_runtime.Encoder
    yield open_runner(files, int(options["threads"]))


def usage(task: str, options: Mapping[str, Any]) -> Usage:
    """A program of a page: an answer, or embeddings as JSON."""
    if task == "causal-lm":
        name, text, needed = "onnx_generate.py", PROMPT, ["jinja2==3.1.6"]
    else:
        name, text, needed = "onnx_encode.py", SENTENCE, []
    runtimes = ["onnxruntime==1.32.0"] + (["onnxruntime-genai==0.18.0"] if options["method"] == BUILD else [])
    program = (PROGRAMS / name).read_text(encoding="utf-8")
    return Usage(f'python {{folder}}/run.py "{text}"', (*runtimes, *SHARED_REQUIREMENTS, *needed), {"run.py": program})
