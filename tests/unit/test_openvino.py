"""The OpenVINO adapter: reading and checking IR without OpenVINO, and (slow) converting and running with it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hallmark import openvino_ir
from hallmark.formats import openvino
from hallmark.openvino_ir import DamagedIR

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
INT4 = dict(openvino.SPEC.variants["int4"].options)
# What the inspection of a converted checkpoint counts, each 0.
SOUND = (
    "missing_tensors", "shape_mismatches", "weight_mismatches", "special_token_mismatch",
    "chat_template_mismatch", "rope_mismatch", "config_mismatch", "baked_axes",
)  # fmt: skip
MEMBERS = {"bf16": "<u2", "f16": "<f2", "f32": "<f4"}


def layer(number, name, kind, data="", ports=""):
    return f'<layer id="{number}" name="{name}" type="{kind}" version="opset1">{data}{ports}</layer>'


def port(kind, names, shape):
    dims = "".join(f"<dim>{size}</dim>" for size in shape)
    return f'<port id="0" precision="{kind}" names="{names}">{dims}</port>'


def write_ir(folder, constants, *, states=(), outputs=None, notes="", name="openvino_model", readers=None):
    """An IR that holds `constants` (name, type, shape, bytes), written by hand; `readers` (type, name) read some."""
    layers, blob = (
        [layer(0, "input_ids", "Parameter", "", f"<output>{port('I64', 'input_ids', (-1, -1))}</output>")],
        b"",
    )
    for constant, kind, shape, data in constants:
        where = f'offset="{len(blob)}" size="{len(data)}"'
        described = f'<data element_type="{kind}" shape="{", ".join(map(str, shape))}" {where}/>'
        layers.append(layer(len(layers), constant, "Const", described))
        blob += data
    edges = ""
    for number, (constant, *_) in enumerate(constants, start=1):
        for kind, operation in (readers or {}).get(constant, ()):
            edges += f'<edge from-layer="{number}" from-port="0" to-layer="{len(layers)}" to-port="0"/>'
            layers.append(layer(len(layers), operation, kind, ""))
    for state in states:
        layers.append(layer(len(layers), "ReadValue_1", "ReadValue", f'<data variable_id="{state}"/>'))
    for output, shape in (outputs or {"logits": (-1, -1, 7)}).items():
        ports = f"<input>{port('FP32', '', shape)}</input>"
        layers.append(layer(len(layers), "Result_9", "Result", "", ports).replace(">", f' output_names="{output}">', 1))
    parts = f"<layers>{''.join(layers)}</layers><edges>{edges}</edges>{notes}"
    text = f'<?xml version="1.0"?>\n<net name="m" version="11">{parts}</net>'
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.xml").write_text(text)
    (folder / f"{name}.bin").write_bytes(blob)
    return folder / f"{name}.xml", folder / f"{name}.bin"


def values(kind, numbers):
    if kind == "bf16":
        return (np.asarray(numbers, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return np.asarray(numbers, MEMBERS[kind]).tobytes()


@pytest.fixture
def artifact(tmp_path):
    """A compressed language model's folder: one weight of 2x8 in 4 bits, groups of 4, a norm, and a lone factor."""
    constants = [
        ("layer.weight", "u4", (2, 2, 4), bytes(8)),
        ("layer.weight/zero_point", "u4", (2, 2, 1), bytes(2)),
        ("layer.weight/scale", "f16", (2, 2, 1), values("f16", [1, 2, 3, 4])),
        ("norm.weight", "f32", (1, 1, 8), values("f32", range(8))),
        ("factor", "f32", (1, 1), values("f32", [0.5])),
        ("axis", "i64", (1,), bytes(8)),
    ]
    folder = tmp_path / "files"
    versions = "<optimum><optimum_version value='2.3.0'/></optimum>"
    write_ir(folder, constants, states=["past.0", "past.1"], notes=f"<rt_info>{versions}</rt_info>")
    said = '<info name="OpenVINO Runtime" value="1"/><eos_token_id value="2"/><chat_template value="{{ x }}"/>'
    notes = f"<rt_info>{said}</rt_info>"
    write_ir(folder, [], notes=notes, name="openvino_tokenizer")
    (folder / "runtime.json").write_text(json.dumps({"device": "CPU", "properties": {}}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]}))
    return folder


def test_inspect_counts_weights_and_not_their_scales(artifact):
    found = openvino.inspect(artifact, artifact, "causal-lm", INT4)
    size = (artifact / "openvino_model.bin").stat().st_size
    told = {"tensors": 2, "parameters": 24, "bits_per_weight": 8 * size / 24, "nonfinite": 0, "stateful": 1}
    assert {name: found.metrics[name] for name in told} == told
    assert found.metrics["vocab_size"] == 7
    assert found.facts["types"] == {
        "f32": {"tensors": 1, "parameters": 8},
        "u4 group 4": {"tensors": 1, "parameters": 16},
    }


def test_inspect_reports_ports_states_and_the_tokenizers_own_notes(artifact):
    facts = openvino.inspect(artifact, artifact, "causal-lm", INT4).facts
    assert facts["inputs"] == {"input_ids": {"type": "i64", "shape": [-1, -1]}}
    assert facts["outputs"] == {"logits": {"type": "f32", "shape": [-1, -1, 7]}}
    assert facts["states"] == 2
    assert facts["special_tokens"] == {"eos_token_id": "2"}
    assert facts["stop_tokens"] == [2, 5]
    assert facts["chat_template"]["sha256"] == hashlib.sha256(b"{{ x }}").hexdigest()
    assert facts["versions"] == {"optimum_version": "2.3.0"}


@pytest.mark.parametrize("kind", MEMBERS)
def test_values_that_are_not_finite_are_counted_by_constant(tmp_path, kind):
    bad = values(kind, [1.0, float("nan"), float("inf"), -float("inf")])
    xml, weights = write_ir(tmp_path, [("good", kind, (2,), values(kind, [1, -2])), ("bad", kind, (4,), bad)])
    assert openvino_ir.count_nonfinite(openvino_ir.read(xml), weights) == (3, {"bad": 3})


def test_nan_in_a_scale_is_found_by_inspect(tmp_path, artifact):
    weights = artifact / "openvino_model.bin"
    content = bytearray(weights.read_bytes())
    content[10:12] = np.float16("nan").tobytes()
    weights.write_bytes(content)
    found = openvino.inspect(artifact, artifact, "causal-lm", INT4)
    assert found.metrics["nonfinite"] == 1
    assert found.facts["nonfinite_in"] == {"layer.weight/scale": 1}


def test_a_short_weight_file_is_refused(artifact):
    weights = artifact / "openvino_model.bin"
    weights.write_bytes(weights.read_bytes()[:-20])
    with pytest.raises(DamagedIR, match=r"openvino_model\.bin: has 42 bytes, norm\.weight ends at 50"):
        openvino.inspect(artifact, artifact, "causal-lm", INT4)


@pytest.mark.parametrize("keep", [0, 0.3, 0.9])
def test_a_cut_description_is_refused(artifact, keep):
    path = artifact / "openvino_model.xml"
    text = path.read_text()
    path.write_text(text[: int(len(text) * keep)])
    with pytest.raises(DamagedIR, match=r"openvino_model\.xml: not a whole IR file"):
        openvino.inspect(artifact, artifact, "causal-lm", INT4)


def test_entities_are_refused(tmp_path):
    path = tmp_path / "openvino_model.xml"
    path.write_text('<!DOCTYPE net [<!ENTITY a "aaaa">]><net>&a;</net>')
    with pytest.raises(DamagedIR, match="document type"):
        openvino_ir.read(path)


def test_no_outputs_is_refused(tmp_path):
    path = tmp_path / "openvino_model.xml"
    path.write_text("<net><layers/></net>")
    with pytest.raises(DamagedIR, match="no outputs"):
        openvino_ir.read(path)


@pytest.mark.parametrize("task", openvino.SPEC.architectures)
def test_usage_is_a_program_with_pinned_packages(task):
    usage = openvino.usage(task, {})
    compile(usage.files["run.py"], "run.py", "exec")
    assert "hallmark" not in usage.files["run.py"]
    assert usage.command.startswith("python {folder}/run.py ")
    assert all(re.fullmatch(r"[a-z-]+==[\d.]+", requirement) for requirement in usage.requirements)


# In the toolchain, which takes seconds to import: each program below does many things in one go.


CONVERT = """
import json, sys
from pathlib import Path
from hallmark.formats import openvino

made = []
for job in json.loads(sys.argv[2]):
    out = Path(job["out"])
    out.mkdir()
    options = {**openvino.SPEC.variants[job["variant"]].options, **job["options"], "threads": 1}
    inputs = {"source": Path(job["source"]), "calibration": Path(sys.argv[1])}
    try:
        made.append({"done": openvino.convert(inputs, out, options), "error": ""})
    except Exception as error:
        made.append({"error": f"{type(error).__name__}: {error}"})
print("\\n" + json.dumps(made))
"""
COMPARE = """
import json, sys
from pathlib import Path
import numpy as np
from hallmark.formats import openvino
from hallmark.pytorch import CausalLM

def compare(torch, runner):
    ids = torch.encode("The import statement, and 12 more: a  test.")
    found = runner.logits(ids)
    steps = [runner.prefill(ids[:5]), *(runner.decode(token) for token in ids[5:])]
    scores = runner.scores()
    answer = [runner.prefill(runner.encode("A "))]
    while len(answer) < 6:
        answer.append(runner.decode(answer[-1]))
    return {
        "tokens": runner.encode("The import statement, and 12 more: a  test.") == ids,
        "worst": float(np.abs(torch.logits(ids) - found).max()),
        "steps": steps == found.argmax(-1)[4:].tolist(),
        "scores": int(scores.argmax()) == steps[-1] and scores.shape == (512,),
        "stops": sorted(runner.stops),
        "answer": torch.tokenizer.decode(answer, skip_special_tokens=True),
        "about": runner.about,
    }

torch, found = CausalLM(Path(sys.argv[1]), 1), []
for files in map(Path, sys.argv[2:]):
    with openvino.open(files, "causal-lm", {"threads": 1}) as runner:
        found.append(compare(torch, runner))
print("\\n" + json.dumps(found))
"""
ENCODE = """
import json, sys
from pathlib import Path
import numpy as np
from hallmark.formats import openvino
from hallmark.pytorch import Encoder

source, files, *texts = sys.argv[1:]
torch = Encoder(Path(source), 1)
with openvino.open(Path(files), "sentence-similarity", {"threads": 1}) as runner:
    vectors, ids = runner.embed(texts), [runner.encode(text) for text in texts]
    together = float((vectors * runner.embed_together(texts)).sum(1).min())
expected = np.concatenate([torch.embed([text]) for text in texts])
worst = float((vectors * expected).sum(1).min())
print("\\n" + json.dumps({"worst": worst, "together": together, "ids": ids, "vectors": vectors.tolist()}))
"""
BERT = """
import json, sys
from pathlib import Path
import torch
from transformers import BertConfig, BertModel

folder = Path(sys.argv[1])
torch.manual_seed(0)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
BertModel(BertConfig(**shape, vocab_size=32)).save_pretrained(folder)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "."]
(folder / "vocab.txt").write_text("\\n".join(words))
(folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
(folder / "modules.json").write_text(json.dumps(modules))
(folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8}))
(folder / "1_Pooling").mkdir()
(folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
print(1)
"""
GEMMA = """
import sys
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig
torch.manual_seed(0)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "head_dim": 32, "vocab_size": 512}
heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "query_pre_attn_scalar": 32}
Gemma3ForCausalLM(Gemma3TextConfig(**shape, **heads, sliding_window=8)).save_pretrained(sys.argv[1])
print(1)
"""
ARCHITECTURES = """
import json
import optimum.exporters.openvino, transformers
from optimum.exporters.tasks import TasksManager
from packaging.version import Version
from transformers.models.auto import modeling_auto as auto

def exported(task):
    for kind in TasksManager._SUPPORTED_MODEL_TYPE:
        try:
            known = TasksManager.get_supported_tasks_for_model_type(kind, "openvino", library_name="transformers")
        except KeyError:
            continue
        made = known.get(task)
        made = getattr(made, "func", made)
        if made is None:
            continue
        lowest, highest = (str(getattr(made, f"{which}_TRANSFORMERS_VERSION", None) or "") for which in ("MIN", "MAX"))
        have = Version(transformers.__version__)
        if not (lowest and have < Version(lowest)) and not (highest and have > Version(highest)):
            yield kind

def names(task, mapping):
    found = getattr(auto, mapping)
    for kind in exported(task):
        value = found.get(kind) or found.get(kind.replace("-", "_")) or ()
        yield from [value] if isinstance(value, str) else value

lms = set(names("text-generation-with-past", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"))
features = "feature-extraction"
heads = names(features, "MODEL_FOR_MASKED_LM_MAPPING_NAMES")
masked = {name for name in heads if name.endswith("ForMaskedLM")}
bodies = names(features, "MODEL_MAPPING_NAMES")
bases = {name for name in bodies if name.removesuffix("Model") + "ForMaskedLM" in masked}
print("\\n" + json.dumps({"lms": sorted(lms), "encoders": sorted(masked | bases)}))
"""


@pytest.fixture(scope="module")
def run(toolchain):
    """Runs a program in the OpenVINO toolchain and returns what its last line holds."""
    python = toolchain("openvino")

    def execute(program, *words):
        environment = {"PYTHONPATH": str(SCRIPTS), "PATH": os.defpath, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        command = [python, "-c", program, *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        print(done.stdout, done.stderr, file=sys.stderr)
        done.check_returncode()
        return json.loads(done.stdout.splitlines()[-1])

    return execute


@pytest.fixture(scope="module")
def convert(run, tmp_path_factory):
    """Converts (source, variant, options) triples in one process; returns [(files, {"done" or "error"})]."""
    import pydoc_data.topics

    calibration = tmp_path_factory.mktemp("calibration")
    texts = [text for text in pydoc_data.topics.topics.values() if len(text) > 2000]
    (calibration / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def made(*jobs):
        folder = tmp_path_factory.mktemp("made")
        named = [
            {"source": str(source), "variant": variant, "options": options, "out": str(folder / str(number))}
            for number, (source, variant, options) in enumerate(jobs)
        ]
        return [
            (Path(job["out"]), found)
            for job, found in zip(named, run(CONVERT, calibration, json.dumps(named)), strict=True)
        ]

    return made


QUICK = {"samples": 4, "tokens": 64}
JOBS = {"fp16": {}, "int8": {}, "int4": {"group_size": 1024}, "int4_awq": QUICK}


@pytest.fixture(scope="module")
def language_models(convert, tiny_llama):
    """The tiny Llama in every variant: {variant: (files, what convert returned)}."""
    made = convert(*((tiny_llama, variant, options) for variant, options in JOBS.items()))
    assert [found["error"] for _, found in made] == [""] * len(JOBS)
    return {variant: (files, found["done"]) for variant, (files, found) in zip(JOBS, made, strict=True)}


@pytest.fixture(scope="module")
def answers(run, tiny_llama, language_models):
    found = run(COMPARE, tiny_llama, *(files for files, _ in language_models.values()))
    return dict(zip(language_models, found, strict=True))


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "worst"), [("fp16", 2e-3), ("int8", 0.1), ("int4", 1.0), ("int4_awq", 1.0)])
def test_a_language_model_answers_like_its_source(language_models, answers, tiny_llama, variant, worst):
    files, _ = language_models[variant]
    assert [name for name in openvino.SPEC.files["causal-lm"] if not (files / name).is_file()] == []
    found = answers[variant]
    assert found["tokens"]
    assert found["worst"] < worst
    assert found["steps"] or variant != "fp16"  # quantised activations differ between a prompt and a step
    assert found["scores"]
    assert found["stops"] == [2]
    assert found["about"]["logits_of_last_position_only"]
    metrics = openvino.inspect(files, tiny_llama, "causal-lm", openvino.SPEC.variants[variant].options).metrics
    assert [name for name in SOUND if metrics[name]] == []
    assert metrics["vocab_size"] == 512
    assert metrics["stateful"] == 1
    assert metrics["nonfinite"] == 0


@pytest.mark.slow
def test_what_was_done_is_recorded(language_models, tiny_llama):
    assert language_models["int4_awq"][1]["calibration_samples"] == 4
    files, done = language_models["int4"]  # 1024 asked; there are 256 and 512 columns, of which NNCF takes the smaller
    assert set(done["types"]) == {"f32", "u4 group 256", "u8 row"}
    assert openvino.inspect(files, tiny_llama, "causal-lm", INT4).facts["types"] == done["types"]


@pytest.mark.slow
def test_the_bytes_depend_on_neither_the_folder_nor_the_run(convert, tiny_llama, language_models, tmp_path):
    elsewhere = shutil.copytree(tiny_llama, tmp_path / "another place" / "of another name")
    again = convert(*((elsewhere, variant, options) for variant, options in JOBS.items()))
    for (first, _), (second, _) in zip(language_models.values(), again, strict=True):
        assert digests(first) == digests(second)
        contents = {path.name: path.read_bytes() for path in second.rglob("*") if path.is_file()}
        assert [name for name, content in contents.items() if b"another place" in content] == []


@pytest.mark.slow
def test_the_bundles_program_says_what_was_measured(language_models, answers, toolchain):
    files, _ = language_models["int8"]
    (files / "run.py").write_text(openvino.usage("causal-lm", {}).files["run.py"])
    command = [toolchain("openvino"), files / "run.py", "A ", "--plain", "--new-tokens", "6"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (files / "run.py").unlink()
    assert said.strip() == answers["int8"]["answer"].strip()


@pytest.mark.slow
def test_an_encoder_answers_like_its_source(run, convert, toolchain, tmp_path):
    source = tmp_path / "bert"
    run(BERT, source)
    [(files, made)] = convert((source, "fp16", {}))
    assert made["error"] == ""
    texts = ["a b c.", "d", "a b c d e f g h i j k l"]
    found = run(ENCODE, source, files, *texts)
    assert found["worst"] > 0.99999
    assert found["together"] > 0.99999, "padding changes the answer"
    assert [len(ids) for ids in found["ids"]] == [6, 3, 8]
    (files / "run.py").write_text(openvino.usage("sentence-similarity", {}).files["run.py"])
    command = [toolchain("openvino"), files / "run.py", *texts]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert np.allclose([json.loads(line) for line in said.splitlines()], found["vectors"], atol=1e-6)


@pytest.mark.slow
def test_sliding_windows_are_kept_beyond_the_exporters_declared_versions(run, convert, tiny_llama, tmp_path):
    source = shutil.copytree(tiny_llama, tmp_path / "gemma")
    run(GEMMA, source)
    [(files, made)] = convert((source, "fp16", {}))
    assert made["error"] == ""
    [found] = run(COMPARE, source, files)
    assert found["worst"] < 5e-3
    assert found["steps"]


BREAK = """
import sys
from safetensors.torch import load_file, save_file

name = "model.layers.1.mlp.up_proj.weight"
for folder in sys.argv[1:]:
    tensors = load_file(f"{folder}/model.safetensors")
    if folder.endswith("lacking"):
        del tensors[name]
    else:
        tensors[name][3, 4] = float("nan") if folder.endswith("nan") else 1e5
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
print(1)
"""


@pytest.mark.slow
def test_what_cannot_be_carried_is_refused(run, convert, tiny_llama, tmp_path):
    sources = {name: shutil.copytree(tiny_llama, tmp_path / name) for name in ("lacking", "nan", "large", "tokenizer")}
    run(BREAK, *(sources[name] for name in ("lacking", "nan", "large")))
    (sources["tokenizer"] / "tokenizer.model").write_bytes(b"not a tokenizer")
    made = convert(
        *((source, "fp16", {}) for source in sources.values()),
        (sources["large"], "int8", {}),
        (tiny_llama, "int4_awq", {"samples": 100_000}),
    )
    lacking, nan, large, tokenizer, large_int8, few = (found["error"] for _, found in made)
    assert "missing keys: model.layers.1.mlp.up_proj.weight" in lacking
    assert "1 values that are NaN or infinite" in nan
    assert "65504: take an int8 or int4 variant" in large
    assert "its tokenizer cannot be read" in tokenizer
    assert large_int8 == ""
    assert "samples is 100000" in few


@pytest.mark.slow
def test_the_table_of_architectures_is_the_toolchains(run):
    from hallmark.openvino_architectures import BEYOND_ITS_LIMIT, ENCODERS, LANGUAGE_MODELS

    found = run(ARCHITECTURES)
    assert set(found["lms"]) == LANGUAGE_MODELS - BEYOND_ITS_LIMIT
    assert set(found["encoders"]) == ENCODERS
