"""GGUF, for llama.cpp: the recipes, and what each leaves behind. The work is done by llama.cpp's own programs.

A float32 file is made once and quantised to each type. Variants in `_imatrix` weigh the rounding by how much each
column of the weights matters on calibration text. K-quants store rows in blocks of 256 columns; rows that do not divide
get a larger type from llama.cpp (576 columns: Q4_K becomes Q5_0), so `convert` and `inspect` report the types in use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hallmark import gguf_file, gguf_programs
from hallmark.formats import INSPECTION, Inspection, Memory, Spec, Usage, Variant
from hallmark.gguf_architectures import ENCODERS, LANGUAGE_MODELS, ROPE
from hallmark.options import Setting

FILE = "model.gguf"
MATRIX = "imatrix.gguf"
PROMPT = "The capital of France is"
SENTENCE = "A man is playing a guitar."
RUNTIME = """# The program that runs model.gguf

`{program}` is part of llama.cpp (MIT licence, https://github.com/ggml-org/llama.cpp): take it from the project's
releases or from a package manager (`brew install llama.cpp`), or build it with cmake. This file was made and measured
with llama.cpp's commit 0c1e57098, which `llama-cpp-python` 0.3.36 carries. Other programs that read GGUF can run it,
such as llama-server and llama-cpp-python.
"""


# For each element of the largest tensor the converter takes 6 bytes and llama-quantize at most 10; llama-imatrix maps
# the whole float32 file.
CONVERTER, QUANTIZE, IMATRIX = Memory(450_000_000, 0, 10), Memory(50_000_000, 0, 10), Memory(450_000_000, 1)


def _quantised(kind: str, weighed: bool = False) -> Variant:
    return Variant({"type": kind}, needs=("f32", "imatrix") if weighed else ("f32",), memory=QUANTIZE)


SPEC = Spec(
    name="gguf",
    title="GGUF for llama.cpp",
    toolchain="llama_cpp",
    variants={
        "f32": Variant({"type": "F32"}, fixed=("type",), intermediate=True),
        "imatrix": Variant(
            {"chunks": 40, "tokens": 512},
            needs=("f32",),
            calibrated=True,
            intermediate=True,
            files=(MATRIX,),
            memory=IMATRIX,
        ),
        "f16": Variant({"type": "F16"}, fixed=("type",)),
        "q8_0": _quantised("Q8_0"),
        "q6_k": _quantised("Q6_K"),
        "q5_k_m": _quantised("Q5_K_M"),
        "q4_k_m": _quantised("Q4_K_M"),
        "q5_k_m_imatrix": _quantised("Q5_K_M", weighed=True),
        "q4_k_m_imatrix": _quantised("Q4_K_M", weighed=True),
    },
    files={"causal-lm": (FILE,), "sentence-similarity": (FILE,)},
    architectures={"causal-lm": LANGUAGE_MODELS, "sentence-similarity": ENCODERS},
    memory=CONVERTER,
    rope=ROPE,
    float16={"type": "F16"},
    settings={
        "type": Setting(
            "type of llama-quantize; rows that do not divide into its blocks get a larger one, which is recorded",
            ("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S"),
        ),
        "chunks": Setting("pieces of calibration text for the importance matrix", least=1),
        "tokens": Setting("tokens of such a piece", least=1),
    },
    remote_code=True,  # it reads config and tensors; the code is kept from it
    code=("hallmark.gguf_programs", "hallmark.gguf_file", "hallmark.source_settings"),
    runtime=("hallmark.gguf_runtime",),
    inspection=(
        "hallmark.gguf_inspection",
        "hallmark.gguf_census",
        "hallmark.gguf_metadata",
        "hallmark.gguf_programs",
        "hallmark.gguf_file",
        "hallmark.pairing",
        "hallmark.rescaled",
        *INSPECTION,
    ),
)


def convert(inputs: Mapping[str, Path], out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write `model.gguf`, or `imatrix.gguf` where the options ask for `chunks`; returns what is in it.

    `type` is one of llama-quantize's (`Q4_K_M`); F32 and F16 come from the checkpoint, the rest from `inputs["f32"]`.
    Raises DamagedFile for a file that is not whole or lacks tensors, ToolError when a program fails.
    """
    threads = int(options["threads"])
    if "chunks" in options:
        return _importance(inputs, out / MATRIX, options, threads)
    kind = str(options["type"])
    if kind in ("F32", "F16"):
        made = gguf_programs.convert_checkpoint(inputs["source"], out / FILE, kind.lower(), threads)
    else:
        matrix = inputs["imatrix"] / MATRIX if "imatrix" in inputs else None
        made = gguf_programs.quantise(inputs["f32"] / FILE, out / FILE, kind, threads, matrix)
    return {
        "asked": kind,
        "types": gguf_file.type_histogram(made.tensors),
        "bits_per_weight": round(made.bits_per_weight, 4),
        "fallbacks": gguf_programs.fallbacks(made.tensors, kind),
    }


def _importance(inputs: Mapping[str, Path], out: Path, options: Mapping[str, Any], threads: int) -> dict[str, Any]:
    lines = (inputs["calibration"] / "text.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines if line]
    chunks, tokens = int(options["chunks"]), int(options["tokens"])
    seen = gguf_programs.collect_importance(inputs["f32"] / FILE, texts, out, chunks, tokens, threads)
    return {"chunks": seen, "tokens": tokens, "texts": len(texts)}


def inspect(files: Path, source: Path, task: str, options: Mapping[str, Any]) -> Inspection:
    """The file against its source: see `gguf_inspection`."""
    from hallmark import gguf_inspection

    return gguf_inspection.inspect(files / FILE, source, str(options["type"]))


@contextmanager
def open(files: Path, task: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """A runner on llama.cpp. Options: `threads`, and `context` in tokens (2048; an encoder's at most its own)."""
    from hallmark import gguf_runtime

    runners = {"causal-lm": gguf_runtime.LanguageModel, "sentence-similarity": gguf_runtime.Encoder}
    runner = runners[task](files / FILE, options)
    try:
        yield runner
    finally:
        runner.close()


def usage(task: str, options: Mapping[str, Any]) -> Usage:
    """llama.cpp's own programs: a completion of 32 tokens, or an embedding as JSON."""
    if task == "causal-lm":
        program = "llama-completion"
        command = f'{program} -m {{folder}}/{FILE} -p "{PROMPT}" -n 32 -no-cnv'
    else:
        program = "llama-embedding"
        command = f'{program} -m {{folder}}/{FILE} -p "{SENTENCE}" --embd-output-format json'
    return Usage(command, files={"RUNTIME.md": RUNTIME.format(program=program)})
