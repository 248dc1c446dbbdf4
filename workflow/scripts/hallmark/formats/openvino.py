"""OpenVINO IR: the recipes, and what each leaves behind. optimum-intel, NNCF and openvino_tokenizers do the work.

A language model is stateful: its key-value cache is inside, and its tokenizer and detokenizer are IR too.

runtime.json holds the settings that the model is measured with, and the bundle's run.py reads the same file.
INFERENCE_PRECISION_HINT is f32: OpenVINO's default depends on the CPU (bfloat16 where it has AMX), so numbers would not
hold on another one, and with float16 weights it has been seen to crash. The KV cache is float16. Activations that meet
compressed weights are quantised while running, in groups of `dynamic_quantization` (0: never), which makes decoding a
third faster; CPUs that cannot do so use float32.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hallmark import openvino_ir, sentence_modules
from hallmark.formats import INSPECTION, Inspection, Memory, Spec, Usage, Variant
from hallmark.openvino_architectures import ENCODERS, LANGUAGE_MODELS, ROPE
from hallmark.options import Setting
from hallmark.progress import report

MODEL, WEIGHTS, TOKENIZER = "openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml"
SETTINGS = "runtime.json"
PROGRAMS = Path(__file__).parent.parent / "run"
REQUIREMENTS = ("openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0")
GENAI = "openvino-genai==2026.4.1.0"
PROMPT, SENTENCE = "What is the capital of France?", "A man is playing a guitar."
GROUPS = (-1, 32, 64, 128, 256, 512, 1024)  # any other negative number NNCF takes as -1
BITS = ("bits",)  # the option that makes a variant what it is
INT4 = {"bits": 4, "symmetric": False, "group_size": 128, "dynamic_quantization": 32}

_COMMON = (MODEL, WEIGHTS, TOKENIZER, "openvino_tokenizer.bin", "config.json", "tokenizer_config.json", SETTINGS)

SPEC = Spec(
    name="openvino",
    title="OpenVINO IR",
    toolchain="openvino",
    variants={
        "fp16": Variant({"bits": 16}, BITS),
        "int8": Variant({"bits": 8, "symmetric": False, "dynamic_quantization": 32}, BITS),
        "int4": Variant(INT4, BITS),
        # NNCF would try 100 exponents. On SmolLM2-135M 20 give the same divergence (0.229) in half the CPU time.
        "int4_awq": Variant(
            {**INT4, "awq": True, "awq_steps": 20, "scale_estimation": True, "samples": 16, "tokens": 128},
            BITS,
            tasks=("causal-lm",),
            calibrated=True,
            memory=Memory(base=700_000_000, per_weight_byte=3.3),
        ),
    },
    files={
        "causal-lm": (*_COMMON, "openvino_detokenizer.xml", "openvino_detokenizer.bin"),
        "sentence-similarity": _COMMON,
    },
    architectures={"causal-lm": LANGUAGE_MODELS, "sentence-similarity": ENCODERS},
    memory=Memory(base=700_000_000, per_weight_byte=2.2),
    rope=ROPE,
    float16={"bits": 16},
    settings={
        "symmetric": Setting("without zero points, or with"),
        "group_size": Setting(
            "columns that share a scale, less where a weight's do not divide; -1: a whole row", GROUPS
        ),
        "dynamic_quantization": Setting(
            "values whose activations share a scale at run time; 0: never in int8", least=0
        ),
        "awq": Setting("correct the weights by the activations on calibration text (AWQ)"),
        "awq_steps": Setting("exponents that AWQ tries for each group", least=1),
        "scale_estimation": Setting("choose the scales by the activations on calibration text"),
        "samples": Setting("texts of the calibration data that are taken", least=1),
        "tokens": Setting("tokens of each such text", least=1),
    },
    code=("hallmark.openvino_export", "hallmark.openvino_ir", "hallmark.sentence_modules"),
    runtime=("hallmark.openvino_runtime", "hallmark.padded_batch", "hallmark.run.openvino_encode"),
    inspection=(
        "hallmark.carried_files",
        "hallmark.openvino_inspection",
        "hallmark.openvino_ir",
        "hallmark.openvino_weights",
        "hallmark.pairing",
        "hallmark.rescaled",
        "hallmark.rope_table",
        *INSPECTION,
    ),
)


def convert(inputs: Mapping[str, Path], out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the IR, its tokenizer, the checkpoint's small files and runtime.json; returns what is in them.

    Options: `bits` (16, 8, 4), `symmetric`, `group_size`, `awq` (`awq_steps`) and `scale_estimation` on `samples` of
    `tokens`, `dynamic_quantization`. Raises ValueError for a checkpoint, a tokenizer or a value
    that cannot be carried, DamagedIR when what was written is not whole.
    """
    import openvino

    from hallmark import openvino_export

    source = inputs["source"]
    task = _task_of(source)
    settings = _settings(source, task, options)
    tokenizer, class_name = openvino_export.convert_tokenizer(source, out, task, settings.get("max_tokens"))
    report(1, 4, "steps")
    done: dict[str, Any] = {"tokenizer": class_name}
    with tempfile.TemporaryDirectory(dir=out, prefix="export-") as scratch:
        half, threads = options["bits"] == 16, int(options["threads"])
        exported = openvino_export.export(source, Path(scratch), task, half, threads)
        report(2, 4, "steps")
        model = openvino.Core().read_model(exported)
        if not half:
            samples = _calibration(inputs, model, tokenizer, options) if "samples" in options else []
            done |= {"calibration_samples": len(samples)} if samples else {}
            model = openvino_export.compress(model, options, samples)
        openvino.save_model(model, out / MODEL, compress_to_fp16=False)
        del model
    report(3, 4, "steps")
    openvino_export.copy_companions(source, out)
    (out / SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    done |= _check(out, task)
    report(4, 4, "steps")
    return done


def _task_of(source: Path) -> str:
    """What the checkpoint is for, by its own files: sentence-transformers' modules.json, else the architecture."""
    architectures = json.loads((source / "config.json").read_text(encoding="utf-8")).get("architectures") or []
    if (source / "modules.json").is_file() or not LANGUAGE_MODELS.intersection(architectures):
        return "sentence-similarity"
    return "causal-lm"


def _settings(source: Path, task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The content of runtime.json. Raises ValueError for modules of an encoder that cannot be run."""
    properties = {
        "CACHE_DIR": "",
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    if "dynamic_quantization" in options:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(options["dynamic_quantization"])
    if task == "causal-lm":
        return {"device": "CPU", "properties": properties | {"KV_CACHE_PRECISION": "f16"}}
    how = {"pooling": sentence_modules.pooling(source), "max_tokens": sentence_modules.longest_input(source)}
    return {"device": "CPU", "properties": properties, **how}


def _calibration(inputs: Mapping[str, Path], model: Any, tokenizer: Any, options: Mapping[str, Any]) -> list[Any]:
    """The first `tokens` of each of `samples` texts, as inputs; texts that are shorter are passed over."""
    from hallmark import openvino_export

    lines = (inputs["calibration"] / "text.jsonl").read_text(encoding="utf-8").splitlines()
    count, tokens, rows = int(options["samples"]), int(options["tokens"]), []
    for line in lines:
        ids = tokenizer([json.loads(line)["text"]])["input_ids"][0].tolist() if line else []
        if len(ids) >= tokens:
            rows.append(ids[:tokens])
        if len(rows) == count:
            return openvino_export.calibration_samples(model, rows)
    raise ValueError(
        f"{inputs['calibration']}/text.jsonl: {len(rows)} texts of {tokens} tokens or more, samples is {count}: "
        "lower samples or tokens, or give more text"
    )


def _check(files: Path, task: str) -> dict[str, Any]:
    """Look at what was written; returns the types in use. Raises DamagedIR when it is not what the task needs."""
    network = openvino_ir.read(files / MODEL)
    openvino_ir.check_size(network, files / WEIGHTS)
    lost, where = openvino_ir.count_nonfinite(network, files / WEIGHTS)
    if lost:
        name = next(iter(where))
        raise openvino_ir.DamagedIR(f"{files / MODEL}: {lost} values are NaN or infinite, {where[name]} in {name}")
    if task == "causal-lm" and not ("logits" in network.outputs and network.states):
        raise openvino_ir.DamagedIR(f"{files / MODEL}: outputs {sorted(network.outputs)}, {len(network.states)} states")
    return {"types": openvino_ir.type_histogram(network)}


def inspect(files: Path, source: Path, task: str, options: Mapping[str, Any]) -> Inspection:
    """The IR and the files beside it against their source: see `openvino_inspection`."""
    from hallmark import openvino_inspection

    return openvino_inspection.inspect(files, source, task, options)


@contextmanager
def open(files: Path, task: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """A runner on OpenVINO's CPU plugin with the settings of runtime.json and `options["threads"]` threads."""
    from hallmark import openvino_runtime

    runners = {"causal-lm": openvino_runtime.LanguageModel, "sentence-similarity": openvino_runtime.Encoder}
    yield runners[task](files, int(options["threads"]))


def usage(task: str, options: Mapping[str, Any]) -> Usage:
    """A program of a page: an answer of openvino_genai's pipeline, or embeddings as JSON."""
    if task == "causal-lm":
        name, text, requirements = "openvino_generate.py", PROMPT, (*REQUIREMENTS, GENAI)
    else:
        name, text, requirements = "openvino_encode.py", SENTENCE, (*REQUIREMENTS, "numpy==2.4.6")
    program = (PROGRAMS / name).read_text(encoding="utf-8")
    return Usage(f'python {{folder}}/run.py "{text}"', requirements, {"run.py": program})
