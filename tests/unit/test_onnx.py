"""The ONNX adapter: reading and counting without onnx, and (slow) exporting, quantising and running artifacts."""

import ast
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hallmark import onnx_census, onnx_companions, onnx_file, onnx_genai
from hallmark.formats import onnx as adapter
from hallmark.onnx_file import DamagedOnnx

FLOAT, UINT8, INT64, HALF, BFLOAT = 1, 2, 7, 10, 16
# What the inspection of a converted checkpoint counts, each 0.
SOUND = (
    "missing_tensors", "shape_mismatches", "weight_mismatches", "special_token_mismatch",
    "chat_template_mismatch", "rope_mismatch", "config_mismatch", "baked_axes", "external_data_mismatch",
)  # fmt: skip
SCRIPTS = Path(adapter.__file__).parents[2]


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(number, value):
    """One protobuf field: a varint, or a text, bytes or message with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, kind, dims, raw=b"", **external):
    body = b"".join(part(1, size) for size in dims) + part(2, kind) + part(8, name)
    if not external:
        return body + part(9, raw)
    return (
        body + b"".join(part(13, part(1, key) + part(2, str(value))) for key, value in external.items()) + part(14, 1)
    )


def operator(kind, inputs, outputs, **attributes):
    told = b"".join(part(5, part(1, name) + part(3, value)) for name, value in attributes.items())
    return (
        b"".join(part(1, name) for name in inputs) + b"".join(part(2, name) for name in outputs) + part(4, kind) + told
    )


def value(name, kind, *dims):
    shape = b"".join(part(1, part(1 if isinstance(size, int) else 2, size)) for size in dims)
    return part(1, name) + part(2, part(1, part(1, kind) + part(2, shape)))


def write(path, tensors=(), operators=(), outputs=()):
    graph = b"".join(part(1, found) for found in operators) + b"".join(part(5, found) for found in tensors)
    graph += part(11, value("input_ids", INT64, "batch", "sequence")) + b"".join(part(12, found) for found in outputs)
    path.write_bytes(part(1, 8) + part(2, "tests") + part(7, graph) + part(8, part(1, "") + part(2, 18)))
    return path


def floats(*values):
    return np.array(values, "<f4").tobytes()


def test_structure_is_read(tmp_path):
    (tmp_path / "model.onnx.data").write_bytes(bytes(8) + floats(1, 2))
    tensors = [
        tensor("here", FLOAT, [2, 1], floats(1, 2)),
        tensor("there", FLOAT, [2], location="model.onnx.data", offset=8, length=8),
    ]
    outputs = [value("logits", FLOAT, "batch", "sequence", 512)]
    file = onnx_file.read(
        write(tmp_path / "model.onnx", tensors, [operator("Gather", ["here", "i"], ["o"], axis=-1)], outputs)
    )
    assert (file.producer, file.ir_version, file.opsets, file.external) == ("tests", 8, {"": 18}, ["model.onnx.data"])
    assert [(found.name, found.type, found.dims, found.length) for found in file.tensors] == [
        ("here", "float32", (2, 1), 8),
        ("there", "float32", (2,), 8),
    ]
    assert file.outputs[0].dims == ("batch", "sequence", 512)
    assert file.operators[0].attributes == {"axis": -1}


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_short_is_refused(tmp_path, share):
    path = write(tmp_path / "model.onnx", [tensor("weight", FLOAT, [50], floats(*range(50)))])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DamagedOnnx, match=r"model\.onnx"):
        onnx_file.read(path)


def test_lost_external_data_is_refused(tmp_path):
    path = write(tmp_path / "model.onnx", [tensor("w", FLOAT, [2], location="model.onnx.data", offset=0, length=8)])
    with pytest.raises(DamagedOnnx, match=r"model\.onnx\.data: 0 bytes, but model\.onnx refers to 8"):
        onnx_file.read(path)


@pytest.mark.parametrize("location", ["../model.onnx.data", "/etc/passwd", "a/b", ""])
def test_external_data_lies_beside_the_model(tmp_path, location):
    path = write(tmp_path / "model.onnx", [tensor("w", FLOAT, [2], location=location, offset=0, length=8)])
    with pytest.raises(DamagedOnnx, match="not a file beside it"):
        onnx_file.read(path)


def test_a_tensor_holds_what_its_shape_says(tmp_path):
    with pytest.raises(DamagedOnnx, match="8 are needed"):
        onnx_file.read(write(tmp_path / "model.onnx", [tensor("w", FLOAT, [2], floats(1))]))


def test_nonfinite_values_are_found_in_every_encoding(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_census, "PIECE", 2)
    listed = b"".join(varint(bits) for bits in (0x7E00, 0x3C00, 0x7C00))  # float16: NaN, 1, infinity
    (tmp_path / "data").write_bytes(floats(np.inf, 1, 2, np.nan, np.nan))
    tensors = [
        tensor("good", FLOAT, [3], floats(1, 2, 3)),
        tensor("raw", FLOAT, [3], floats(1, 2, np.nan)),
        tensor("brain", BFLOAT, [2], struct.pack("<HH", 0x7F80, 0x3F80)),
        tensor("outside", FLOAT, [5], location="data", offset=0, length=20),
        part(1, 3) + part(2, HALF) + part(8, "listed") + part(5, listed),
        part(1, 2) + part(2, FLOAT) + part(8, "floats") + part(4, floats(-np.inf, 0)),
    ]
    file = onnx_file.read(write(tmp_path / "model.onnx", tensors))
    assert onnx_census.nonfinite(file.tensors) == {"raw": 1, "brain": 1, "outside": 3, "listed": 2, "floats": 1}


def packed_model(path, columns=64, block=32):
    """A table and a head that share 4-bit weights, and a norm: 10 x 64 weights in 320 bytes, scales, zero points."""
    blocks = -(-columns // block)
    tensors = [
        tensor("head", UINT8, [10, blocks, block // 2], bytes(10 * blocks * block // 2)),
        tensor("scales", FLOAT, [10, blocks], floats(*[1] * 10 * blocks)),
        tensor("zeros", UINT8, [10, 1], bytes(10)),
        tensor("norm", FLOAT, [columns], floats(*[1] * columns)),
        tensor("shape", INT64, [2], bytes(16)),
    ]
    settings = {"bits": 4, "block_size": block}
    operators = [
        operator("Reshape", ["head", "shape"], ["flat"]),
        operator("GatherBlockQuantized", ["flat", "input_ids", "scales", "zeros"], ["x"], **settings),
        operator(
            "MatMulNBits", ["x", "head", "scales", "zeros"], ["logits"], K=columns, N=10, accuracy_level=4, **settings
        ),
    ]
    return write(path, tensors, operators, [value("logits", FLOAT, "batch", "sequence", 10)])


def test_packed_weights_are_counted_once_and_by_their_bits(tmp_path):
    file = onnx_file.read(packed_model(tmp_path / "model.onnx"))
    assert onnx_census.histogram(onnx_census.weights(file)) == {
        "int4/32": {"tensors": 1, "weights": 640, "bytes": 320},
        "float32": {"tensors": 1, "weights": 64, "bytes": 256},
    }
    assert onnx_census.operations(file)["MatMulNBits, 4 bits, blocks of 32, accuracy level 4"] == 1
    assert onnx_census.padded(file) == []


def test_padded_columns_are_reported(tmp_path):
    file = onnx_file.read(packed_model(tmp_path / "model.onnx", columns=48))
    assert onnx_census.padded(file) == ["48 columns in blocks of 32: 1 weights padded"]


def test_inspection_tells_structure_and_text(tmp_path):
    packed_model(tmp_path / "model.onnx")
    added = [{"id": 1, "content": "<s>", "special": True}, {"id": 9, "content": "word", "special": False}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": {"content": "<s>"}, "chat_template": "{{ x }}"})
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    found = adapter.inspect(tmp_path, tmp_path, "causal-lm", dict(adapter.SPEC.variants["int4"].options))
    told = {
        "tensors": 5, "parameters": 704, "bits_per_weight": 8 * (320 + 80 + 10 + 256 + 16) / 704, "nonfinite": 0,
        "opset": 18, "vocab_size": 10,
    }  # fmt: skip
    assert {name: found.metrics[name] for name in told} == told
    assert found.facts["special_tokens"] == {"<s>": 1}
    assert found.facts["special_token_ids"] == {"bos": [1], "eos": [2, 3]}
    assert found.facts["stop_tokens"] == [2, 3]
    assert found.facts["chat_template"]["characters"] == 7
    assert found.facts["free_dimensions"] == ["batch", "sequence"]


def test_rotary_settings_reach_transformers_4():
    made = onnx_companions.readable_by_transformers_4({"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}})
    assert made == {"rope_theta": 1e5}
    yarn = {"rope_theta": 5.0, "rope_type": "yarn", "factor": 2.0}
    made = onnx_companions.readable_by_transformers_4({"rope_parameters": yarn})
    assert made == {"rope_theta": 5.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}
    layers = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    made = onnx_companions.readable_by_transformers_4({"rope_parameters": layers})
    assert made == {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
    assert onnx_companions.readable_by_transformers_4({"rope_theta": 7}) == {"rope_theta": 7}


@pytest.mark.parametrize(
    ("hidden", "options", "expected"),
    [
        (576, {"block_size": 32, "algorithm": "rtn", "bits": 4, "symmetric": False}, 32),
        (576, {"block_size": 64, "algorithm": "rtn", "bits": 4, "symmetric": True}, 64),
        (576, {"block_size": 64, "algorithm": "k_quant", "bits": 4, "symmetric": True}, 32),  # 9 blocks of 64: odd
        (576, {"block_size": 128, "algorithm": "default", "bits": 8, "symmetric": True}, 64),
        (100, {"block_size": 32, "algorithm": "default", "bits": 8, "symmetric": True}, 32),  # nothing divides: padded
    ],
)
def test_block_size_suits_the_columns(hidden, options, expected):
    config = {"hidden_size": hidden, "intermediate_size": 1536, "num_attention_heads": 1}
    block, why = onnx_genai.block_size(config, options)
    assert block == expected
    assert bool(why) == (block != options["block_size"] or hidden == 100)


def checkpoint(folder, architecture="LlamaForCausalLM", modules=()):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "max_position_embeddings": 99}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 10**30, "a": "é"}))
    if modules:
        rows = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
        (folder / "modules.json").write_text(json.dumps(rows))
    return folder


def test_architecture_beyond_the_tool_is_refused(tmp_path):
    source = checkpoint(tmp_path, "Olmo2ForCausalLM")
    with pytest.raises(ValueError, match=r"Olmo2ForCausalLM is not what onnxruntime-genai's builder carries"):
        adapter.convert({"source": source}, tmp_path / "out", adapter.SPEC.variants["int4"].options)


def test_companions_are_copied_and_length_is_bounded(tmp_path):
    source = checkpoint(tmp_path / "source", "BertModel", [("Transformer", ""), ("Pooling", "1_Pooling")])
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling/config.json").write_text("{}")
    out = tmp_path / "out"
    out.mkdir()
    onnx_companions.copy(source, out)
    assert json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8")) == {"model_max_length": 99, "a": "é"}
    assert (out / "1_Pooling/config.json").is_file()


def test_an_encoders_longest_input_is_stated_where_the_source_leaves_it_to_be_found(tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "config.json").write_text(json.dumps({"model_type": "roberta", "max_position_embeddings": 514}))
    onnx_companions.state_longest_input(source, out)
    assert json.loads((out / "sentence_bert_config.json").read_text(encoding="utf-8")) == {"max_seq_length": 512}


def test_a_module_that_cannot_be_run_is_refused(tmp_path):
    source = checkpoint(tmp_path / "source", "BertModel", [("Transformer", ""), ("Dense", "2_Dense")])
    with pytest.raises(ValueError, match=r"models\.Dense"):
        onnx_companions.copy(source, tmp_path)


@pytest.mark.parametrize("task", ["causal-lm", "sentence-similarity"])
def test_the_bundle_program_stands_alone(task):
    usage = adapter.usage(task, adapter.SPEC.variants["fp32"].options)
    tree = ast.parse(usage.files["run.py"])
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(str(module).startswith("hallmark") for module in imported)
    assert all("==" in requirement for requirement in usage.requirements)


# ------------------------------------------------------------------ with the toolchains


CONVERT = """
import sys
from pathlib import Path
from hallmark.formats import onnx
source, root, *names = map(Path, sys.argv[1:])
for name in map(str, names):
    variant, out = onnx.SPEC.variants[name], root / name
    out.mkdir(parents=True)
    inputs = {"source": source} | {need: root / need for need in variant.needs}
    onnx.convert(inputs, out, {**variant.options, "threads": 1})
"""
SOURCE = """
import json, sys
from pathlib import Path
from hallmark import pytorch
kind, source, given = getattr(pytorch, sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
runner = kind(source, 1)
answer = runner.embed(given) if kind is pytorch.Encoder else runner.logits(given)
texts = ["Hello world", " two  spaces", "<s> a 1", ""]
print(json.dumps({"answer": answer.tolist(), "ids": [runner.encode(text) for text in texts]}))
"""
RUN = """
import json, sys
from pathlib import Path
from hallmark.formats import onnx
task, root, given, names = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:]
found, texts = {}, ["Hello world", " two  spaces", "<s> a 1", ""]
for name in names:
    with onnx.open(root / name, task, {"threads": 1}) as runner:
        answer = runner.embed(given) if task != "causal-lm" else runner.logits(given)
        found[name] = {"answer": answer.tolist(), "ids": [runner.encode(text) for text in texts]}
        if task != "causal-lm":
            found[name]["together"] = runner.embed_together(given).tolist()
        else:
            greedy = [int(row.argmax()) for row in answer]
            steps = [runner.prefill(given[:5]), *(runner.decode(token) for token in given[5:])]
            found[name]["follows"] = steps == greedy[4:]
            scores = runner.scores()
            found[name]["scores"] = int(scores.argmax()) == steps[-1] and scores.shape == (512,)
            found[name]["stops"] = sorted(runner.stops)
print(json.dumps(found))
"""
ENCODER = """
import json, sys
from pathlib import Path
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel
out = Path(sys.argv[1])
torch.manual_seed(0)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", *"abcdefgh", *("##" + c for c in "abcdefgh")]
BertModel(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                     intermediate_size=64, max_position_embeddings=16)).save_pretrained(out)
tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
tokenizer.save(str(out / "tokenizer.json"))
names = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
config = {f"{role}_token": text for role, text in names.items()} | {"tokenizer_class": "PreTrainedTokenizerFast"}
(out / "tokenizer_config.json").write_text(json.dumps(config))
modules = [{"type": "sentence_transformers.models.Transformer", "path": ""},
           {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
(out / "modules.json").write_text(json.dumps(modules))
(out / "1_Pooling").mkdir()
(out / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
"""
IDS = [1, 300, 17, 42, 500, 99, 7, 250, 33, 480]
TEXTS = ["hello world", "a b c d", "hello " * 40]


def run_in(python, code, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "HF_HUB_OFFLINE": "1"}
    command = [python, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout


def files_of(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def language_model(toolchain, tiny_llama, tmp_path_factory):
    """The tiny Llama converted twice: the second time from and to folders of other names."""
    roots = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two") / "another-name"
    copied = shutil.copytree(tiny_llama, tmp_path_factory.mktemp("sources") / "renamed")
    for source, root in zip((tiny_llama, copied), roots, strict=True):
        run_in(toolchain("onnx"), CONVERT, source, root, "fp32", "int8_dynamic")
        run_in(toolchain("onnx_genai"), CONVERT, source, root, "int8", "int4")
    return roots


@pytest.fixture(scope="module")
def encoder(toolchain, tmp_path_factory):
    """A tiny encoder's checkpoint, and the folder of its artifacts."""
    folder = tmp_path_factory.mktemp("encoder")
    run_in(toolchain("torch"), ENCODER, folder / "source")
    run_in(toolchain("onnx"), CONVERT, folder / "source", folder / "made", "fp32", "fp16", "int8_dynamic")
    return folder / "source", folder / "made"


@pytest.mark.slow
def test_conversions_do_not_depend_on_names(language_model):
    one, other = map(files_of, language_model)
    assert len(one) == 20
    assert one == other


@pytest.mark.slow
def test_language_models_answer_like_the_source(toolchain, tiny_llama, language_model):
    root, given = language_model[0], json.dumps(IDS)
    source = json.loads(run_in(toolchain("torch"), SOURCE, "CausalLM", tiny_llama, given))
    found = json.loads(run_in(toolchain("onnx"), RUN, "causal-lm", root, given, "fp32", "int8_dynamic"))
    found |= json.loads(run_in(toolchain("onnx_genai"), RUN, "causal-lm", root, given, "int8", "int4"))
    expected = np.array(source["answer"])
    limits = {"fp32": 1e-5, "int8": 0.05, "int4": 0.5, "int8_dynamic": 1.0}
    for name, limit in limits.items():
        assert np.abs(np.array(found[name]["answer"]) - expected).max() < limit * np.abs(expected).max(), name
        assert found[name]["ids"] == source["ids"], name
        assert found[name]["scores"] and found[name]["stops"] == [2], name
    assert found["fp32"]["follows"] and found["int8"]["follows"]


@pytest.mark.slow
def test_realised_types_are_what_was_asked(language_model, tiny_llama):
    found = {
        name: adapter.inspect(language_model[0] / name, tiny_llama, "causal-lm", adapter.SPEC.variants[name].options)
        for name in ("fp32", "int8_dynamic", "int8", "int4")
    }
    for inspection in found.values():
        assert [name for name in SOUND if inspection.metrics[name]] == []
    assert {inspection.metrics["nonfinite"] for inspection in found.values()} == {0}
    assert {inspection.metrics["vocab_size"] for inspection in found.values()} == {512}
    assert found["int4"].facts["types"]["int4/32"]["tensors"] > 0
    # The exporter keeps equal constants once, and the tiny model's norms are all ones.
    assert found["int8"].metrics["parameters"] == pytest.approx(found["fp32"].metrics["parameters"], rel=0.001)


@pytest.mark.slow
def test_encoders_answer_like_the_source(toolchain, encoder):
    source, made = encoder
    given = json.dumps(TEXTS)
    expected = json.loads(run_in(toolchain("torch"), SOURCE, "Encoder", source, given))
    names = ("fp32", "fp16", "int8_dynamic")
    found = json.loads(run_in(toolchain("onnx"), RUN, "sentence-similarity", made, given, *names))
    for name, limit in zip(names, (1e-5, 1e-3, 0.1), strict=True):
        cosines = (np.array(found[name]["answer"]) * np.array(expected["answer"])).sum(1)
        assert 1 - cosines.min() < limit, name
        assert found[name]["ids"] == expected["ids"], name
    alone, together = (np.array(found["fp32"][how]) for how in ("answer", "together"))
    assert (alone * together).sum(1).min() > 0.99999, "padding changes the answer"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "environment"), [("fp32", "onnx"), ("int8", "onnx_genai")])
def test_bundle_program_answers(toolchain, language_model, tmp_path, name, environment):
    usage = adapter.usage("causal-lm", adapter.SPEC.variants[name].options)
    folder = shutil.copytree(language_model[0] / name, tmp_path / "bundle")
    (folder / "run.py").write_text(usage.files["run.py"])
    command = [toolchain(environment), folder / "run.py", "Hello", "--tokens", "5"]
    made = subprocess.run(
        command, check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin"}
    )
    assert made.stdout.endswith("\n")


@pytest.mark.slow
def test_checkpoint_that_lacks_a_tensor_is_refused(toolchain, tiny_llama, tmp_path):
    source = shutil.copytree(tiny_llama, tmp_path / "source")
    drop = """
import sys
from safetensors.torch import load_file, save_file
found = load_file(sys.argv[1])
del found["model.layers.1.mlp.up_proj.weight"]
save_file(found, sys.argv[1], metadata={"format": "pt"})
"""
    run_in(toolchain("onnx"), drop, source / "model.safetensors")
    code = CONVERT.replace("import sys", "import sys\nsys.stderr = sys.stdout", 1)
    with pytest.raises(subprocess.CalledProcessError) as failure:
        run_in(toolchain("onnx"), code, source, tmp_path / "out", "fp32")
    assert (
        "lacks 1 tensors that LlamaForCausalLM needs, such as model.layers.1.mlp.up_proj.weight" in failure.value.stdout
    )


@pytest.mark.slow
def test_a_model_that_the_builder_misreads_is_refused(toolchain, tiny_llama, tmp_path):
    source = shutil.copytree(tiny_llama, tmp_path / "source")
    narrow = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
folder = Path(sys.argv[1])
config = json.loads((folder / "config.json").read_text())
found = load_file(folder / "model.safetensors")
for name, weight in found.items():
    if ".mlp." in name:
        found[name] = (weight[:, :512] if "down" in name else weight[:512]).contiguous()
save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
(folder / "config.json").write_text(json.dumps(config | {"intermediate_size": config["vocab_size"]}))
"""
    run_in(toolchain("onnx_genai"), narrow, source)
    code = CONVERT.replace("import sys", "import sys\nsys.stderr = sys.stdout", 1)
    with pytest.raises(subprocess.CalledProcessError) as failure:
        run_in(toolchain("onnx_genai"), code, source, tmp_path / "out", "int8")
    assert "the builder has misread this model" in failure.value.stdout


@pytest.mark.slow
def test_a_model_with_two_kinds_of_attention_is_built_and_answers_short_texts(toolchain, tiny_llama, tmp_path):
    """Gemma 3 has a rotary base for each kind of layer, and a sliding window longer than the text that is asked."""
    source = shutil.copytree(tiny_llama, tmp_path / "source")
    write = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from transformers import Gemma3ForCausalLM, Gemma3TextConfig
folder = Path(sys.argv[1])
torch.manual_seed(0)
config = Gemma3TextConfig(hidden_size=128, intermediate_size=384, num_hidden_layers=6, num_attention_heads=2,
                          head_dim=64, num_key_value_heads=1, vocab_size=512, max_position_embeddings=512,
                          sliding_window=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, query_pre_attn_scalar=64)
state = Gemma3ForCausalLM(config).state_dict()
save_file({name: tensor.contiguous() for name, tensor in state.items() if name != "lm_head.weight"},
          folder / "model.safetensors", metadata={"format": "pt"})
(folder / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": ["Gemma3ForCausalLM"]}))
"""
    run_in(toolchain("onnx_genai"), write, source)
    kept = (
        CONVERT.replace("    onnx.convert(", "    made = onnx.convert(")
        + "    print(made['correlation_with_source'])\n"
    )
    assert float(run_in(toolchain("onnx_genai"), kept, source, tmp_path / "out", "int8").splitlines()[-1]) > 0.99
    settings = json.loads((tmp_path / "out/int8/genai_config.json").read_text())["model"]["decoder"]
    assert settings["sliding_window"]["window_size"] == 64


@pytest.mark.slow
def test_architecture_tables_are_the_toolchains(toolchain):
    exported = """
import json
import optimum.exporters.onnx.model_configs
from optimum.exporters.tasks import TasksManager
from transformers.models.auto import modeling_auto as auto
def named(task, *maps):
    every = TasksManager._SUPPORTED_MODEL_TYPE.items()
    types = [name.replace("-", "_") for name, tools in every if task in tools.get("onnx", {})]
    known = [{key.replace("-", "_"): value for key, value in mapping.items()} for mapping in maps]
    return sorted({mapping[name] for name in types if all(name in found for found in known) for mapping in known})
print(json.dumps([named("text-generation-with-past", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
                  named("feature-extraction", auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_MAPPING_NAMES)]))
"""
    built = """
import re
from importlib.util import find_spec
from pathlib import Path
text = (Path(find_spec("onnxruntime_genai").origin).parent / "models/builder.py").read_text()
print(*sorted(set(re.findall(r'architectures\\[0\\] == "(\\w+)"', text))))
"""
    models, encoders = json.loads(run_in(toolchain("onnx"), exported))
    assert set(models) - adapter.EXPORTED_LANGUAGE_MODELS == {"Gemma3ForConditionalGeneration"}
    assert set(models) >= adapter.EXPORTED_LANGUAGE_MODELS
    assert set(encoders) >= adapter.ENCODERS
    assert set(run_in(toolchain("onnx_genai"), built).split()) >= adapter.BUILT_LANGUAGE_MODELS
