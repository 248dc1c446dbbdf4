"""The GGUF adapter: reading and checking files without llama.cpp, and (slow) converting and running with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from safetensors.numpy import save_file
from tests.unit.gguf_files import TYPES, write

from hallmark import formats, gguf_file, gguf_programs
from hallmark.formats import gguf as adapter
from hallmark.gguf_file import DamagedFile, Tensor

ROWS, COLUMNS = 8, 64
SOURCE = {
    "model.embed_tokens.weight": np.ones((ROWS, COLUMNS), np.float32),
    "model.layers.0.self_attn.q_proj.weight": np.ones((COLUMNS, COLUMNS), np.float32),
    "model.norm.weight": np.ones(COLUMNS, np.float32),
}
# What the inspection of a converted checkpoint counts, each 0.
SOUND = (
    "missing_tensors", "surplus_tensors", "shape_mismatches", "weight_mismatches", "uncompared_share",
    "vocabulary_mismatch", "special_token_mismatch", "chat_template_mismatch", "rope_mismatch", "config_mismatch",
)  # fmt: skip
STORED = {
    "token_embd.weight": (ROWS, COLUMNS),
    "blk.0.attn_q.weight": (COLUMNS, COLUMNS),
    "output_norm.weight": (COLUMNS,),
}


def write_gguf(path, tensors=None, kind=TYPES.F32, tokens=ROWS):
    """A GGUF file of ones (or of the given arrays, stored as `kind` where they have rows)."""
    keys = {
        "llama.block_count": 1, "llama.context_length": 128, "llama.rope.freq_base": 10000.0,
        "general.file_type": int(
            gguf.LlamaFileType.MOSTLY_Q8_0 if kind == TYPES.Q8_0 else gguf.LlamaFileType.ALL_F32
        ),
        "tokenizer.ggml.tokens": [f"token {number}" for number in range(tokens)],
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
    }  # fmt: skip
    stored = tensors or {name: np.ones(shape, np.float32) for name, shape in STORED.items()}
    return write(path, stored, keys, kind)


def write_checkpoint(folder, tensors=None, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(SOURCE if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": True} if config is None else config))
    return folder


def test_header_agrees_with_the_gguf_package(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", kind=TYPES.Q8_0)
    file, theirs = gguf_file.read(path), gguf.GGUFReader(path)
    assert {key: field.contents() for key, field in theirs.fields.items() if "." in key and key[:4] != "GGUF"} == (
        file.metadata
    )
    for tensor, other in zip(file.tensors, theirs.tensors, strict=True):
        assert (tensor.name, tensor.type, tensor.bytes) == (other.name, other.tensor_type.name, other.n_bytes)
        assert (tensor.offset, tensor.shape) == (other.data_offset, tuple(other.shape.tolist()))


@pytest.mark.parametrize("cut", [3, 20, 200, 1000, -1])
def test_truncated_file_is_found(tmp_path, cut):
    path = write_gguf(tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DamagedFile, match=r"model\.gguf: "):
        gguf_file.read(path)


def test_other_file_is_refused(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(DamagedFile, match="does not begin with GGUF"):
        gguf_file.read(path)


def test_inspect(tmp_path):
    write_gguf(tmp_path / "model.gguf", kind=TYPES.Q8_0)
    source = write_checkpoint(tmp_path / "source", config={"tie_word_embeddings": True, "num_attention_heads": 4})
    found = adapter.inspect(tmp_path, source, "causal-lm", {"type": "Q8_0"})
    elements = ROWS * COLUMNS + COLUMNS * COLUMNS + COLUMNS
    assert {name: found.metrics[name] for name in list(found.metrics)[:6]} == {
        "tensors": 3,
        "parameters": elements,
        "bits_per_weight": 8 * ((elements - COLUMNS) / 32 * 34 + COLUMNS * 4) / elements,
        "nonfinite": 0,
        "vocab_size": ROWS,
        "context_length": 128,
    }
    facts = found.facts
    assert (facts["type_asked"], facts["types"]) == ("Q8_0", {"Q8_0": 2, "F32": 1})
    assert facts["special_tokens"] == {"bos_token_id": 1}
    assert facts["adds"] == {"bos": True, "eos": None, "sep": None}
    assert facts["chat_template"]["characters"] == len("{{ messages }}")
    assert facts["rope"] == {"rope.freq_base": 10000.0}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_weights_are_counted(tmp_path, value):
    weights = np.ones((ROWS, COLUMNS), np.float32)
    weights[3, 5:7] = value
    file = gguf_file.read(write_gguf(tmp_path / "model.gguf", {"a.weight": weights}))
    assert gguf_file.count_nonfinite(file) == (2, [])


@pytest.mark.parametrize("name", sorted(gguf_file.SCALES))
def test_scales_lie_where_the_gguf_package_reads_them(name):
    weights, size = gguf.GGML_QUANT_SIZES[TYPES[name]]
    for offset in gguf_file.SCALES[name]:
        block = np.full((1, size), 1, np.uint8)
        block[0, offset : offset + 2] = np.array([np.nan], np.float16).view(np.uint8)
        values = dequantize(block, TYPES[name])
        assert values.size == weights
        assert np.isnan(values).all()


def test_nonfinite_scale_is_counted(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", kind=TYPES.Q8_0)
    tensor = gguf_file.read(path).by_name["token_embd.weight"]
    data = bytearray(path.read_bytes())
    data[tensor.offset + 34 : tensor.offset + 36] = np.array([np.inf], np.float16).tobytes()
    path.write_bytes(data)
    assert gguf_file.count_nonfinite(gguf_file.read(path)) == (1, [])


def test_complete_conversion_passes(tmp_path):
    made = gguf_file.read(write_gguf(tmp_path / "model.gguf"))
    unnamed = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32),
        "lm_head.weight": SOURCE["model.norm.weight"],
    }
    gguf_programs.check_complete(made, write_checkpoint(tmp_path / "source", SOURCE | unnamed))


def test_encoder_with_a_head_is_looked_up_without_its_prefix(tmp_path):
    made = gguf_file.GgufFile(tmp_path / "m", {"general.architecture": "bert", "bert.block_count": 1}, ())
    weights = np.ones((2, 2), np.float32)
    names = ("bert.encoder.layer.0.output.dense.weight", "bert.pooler.dense.weight", "cls.predictions.bias")
    source = write_checkpoint(tmp_path / "source", dict.fromkeys(names, weights))
    assert gguf_programs.named_tensors(made, source) == {names[0]: ("blk.0.ffn_down.weight", 4)}


def test_lost_tensor_is_named(tmp_path):
    stored = {name: np.ones(shape, np.float32) for name, shape in STORED.items() if name != "blk.0.attn_q.weight"}
    made = gguf_file.read(write_gguf(tmp_path / "model.gguf", stored))
    with pytest.raises(DamagedFile, match=r"lacks 1 tensors .*model\.layers\.0\.self_attn\.q_proj\.weight"):
        gguf_programs.check_complete(made, write_checkpoint(tmp_path / "source"))


def test_tokenizer_that_does_not_fit_is_refused(tmp_path):
    made = gguf_file.read(write_gguf(tmp_path / "model.gguf", tokens=ROWS + 5))
    with pytest.raises(DamagedFile, match="13 tokens but 8 rows"):
        gguf_programs.check_complete(made, write_checkpoint(tmp_path / "source"))


def test_fallbacks_are_counted_by_columns():
    tensors = [
        Tensor("a", (576, 4), "Q5_0", 0, 0),
        Tensor("b", (576, 4), "Q8_0", 0, 0),
        Tensor("c", (512, 4), "Q4_K", 0, 0),
        Tensor("norm", (576,), "F32", 0, 0),
    ]
    found = gguf_programs.fallbacks(tensors, "Q4_K_M")
    assert found == {"block": 256, "tensors": 2, "columns": {"576": {"Q5_0": 1, "Q8_0": 1}}}
    assert gguf_programs.fallbacks(tensors, "Q8_0")["tensors"] == 0


CONVERTER = """
import json, pathlib, shutil, sys
seen = {"argv": sys.argv[1:], "files": sorted(path.name for path in pathlib.Path("model").iterdir())}
pathlib.Path(RECORD).write_text(json.dumps(seen))
shutil.copy(GGUF, sys.argv[sys.argv.index("--outfile") + 1])
"""
PROGRAM = """#!{python}
import json, pathlib, shutil, sys
pathlib.Path({record!r}).write_text(json.dumps(sys.argv[1:]))
if {gguf!r}:
    shutil.copy({gguf!r}, sys.argv[sys.argv.index("-o") + 1] if "-o" in sys.argv else sys.argv[-3])
"""


@pytest.fixture
def llama_cpp(tmp_path, monkeypatch):
    """A toolchain whose programs record how they are called and copy a prepared file; a function to set it up."""
    folder, record = tmp_path / "toolchain/llama.cpp", tmp_path / "record.json"
    (folder / "bin").mkdir(parents=True)
    monkeypatch.setenv("HALLMARK_TOOLCHAIN", str(folder.parent))

    def prepare(prepared):
        text = CONVERTER.replace("RECORD", repr(str(record))).replace("GGUF", repr(str(prepared)))
        (folder / "convert_hf_to_gguf.py").write_text(text)
        for name in ("llama-quantize", "llama-imatrix"):
            program = folder / "bin" / name
            source = str(prepared) if prepared else ""
            program.write_text(PROGRAM.format(python=sys.executable, record=str(record), gguf=source))
            program.chmod(0o755)
        return lambda: json.loads(record.read_text())

    return prepare


def test_converter_sees_neither_names_nor_the_model_card_nor_code(tmp_path, llama_cpp):
    record = llama_cpp(write_gguf(tmp_path / "prepared.gguf"))
    source, out = write_checkpoint(tmp_path / "secret-name-7B"), tmp_path / "out"
    for name in ("README.md", "tokenization.py", ".gitattributes"):
        (source / name).write_text("")
    out.mkdir()
    result = adapter.convert({"source": source}, out, {"type": "F32", "threads": 1})
    assert result["types"] == {"F32": 3}
    assert [path.name for path in out.iterdir()] == ["model.gguf"]
    assert record()["files"] == ["config.json", "model.safetensors"]
    assert "secret" not in " ".join(record()["argv"])


def test_matrix_is_passed_by_a_fixed_relative_name(tmp_path, llama_cpp):
    record = llama_cpp(write_gguf(tmp_path / "prepared.gguf"))
    for name in ("f32", "imatrix", "out"):
        (tmp_path / name).mkdir()
    write_gguf(tmp_path / "f32/model.gguf")
    inputs = {name: tmp_path / name for name in ("f32", "imatrix")}
    (tmp_path / "imatrix/imatrix.gguf").write_bytes(b"")
    adapter.convert(inputs, tmp_path / "out", {"type": "Q8_0", "threads": 1})
    assert record()[:2] == ["--imatrix", "imatrix.gguf"]


def test_empty_conversion_is_refused(tmp_path, llama_cpp):
    writer = gguf.GGUFWriter(tmp_path / "prepared.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    llama_cpp(tmp_path / "prepared.gguf")
    (tmp_path / "out").mkdir()
    with pytest.raises(DamagedFile, match="no tensors"):
        adapter.convert({"source": write_checkpoint(tmp_path / "s")}, tmp_path / "out", {"type": "F16", "threads": 1})


def test_matrix_that_was_not_written_is_an_error(tmp_path, llama_cpp):
    llama_cpp(None)
    for name in ("f32", "calibration", "out"):
        (tmp_path / name).mkdir()
    write_gguf(tmp_path / "f32/model.gguf")
    (tmp_path / "calibration/text.jsonl").write_text('{"text": "one"}\n')
    inputs = {name: tmp_path / name for name in ("f32", "calibration")}
    with pytest.raises(DamagedFile, match="wrote no matrix"):
        adapter.convert(inputs, tmp_path / "out", {"chunks": 2, "tokens": 16, "threads": 1})
    assert list((tmp_path / "out").iterdir()) == []


def test_architectures_of_the_demo_are_known():
    known = formats.spec("gguf").architectures
    assert {"LlamaForCausalLM", "Gemma3ForCausalLM"} <= known["causal-lm"]
    assert "BertModel" in known["sentence-similarity"]


# Below: with llama.cpp itself. The scripts run in its toolchain.

CONVERT = """
import sys
from pathlib import Path
from hallmark.formats import gguf
source, root, calibration = map(Path, sys.argv[1:4])
for name in sys.argv[4:]:
    variant = gguf.SPEC.variants[name]
    inputs = {"source": source, "calibration": calibration} | {need: root / need for need in variant.needs}
    options = {**variant.options, "threads": 1} | ({"chunks": 4, "tokens": 64} if variant.calibrated else {})
    (root / name).mkdir(parents=True)
    gguf.convert(inputs, root / name, options)
"""
RUN = """
import json, sys
from pathlib import Path
import numpy as np, torch
from transformers import AutoModelForCausalLM
from hallmark.formats import gguf
source, root = map(Path, sys.argv[1:3])
text = "The tests of a format\\n  compare it with its source."
model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
found = {}
for name in sys.argv[3:]:
    with gguf.open(root / name, "causal-lm", {"threads": 1, "context": 256}) as runner:
        ids = runner.encode(text)
        got = torch.from_numpy(runner.logits(ids)).double().log_softmax(-1)
        want = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        first = runner.prefill(ids)
        second = runner.decode(first)
        scores = runner.scores()
        found[name] = {
            "scores": int(scores.argmax()) == second and scores.shape == (512,),
            "stops": sorted(runner.stops),
            "kl": float((want.exp() * (want - got)).sum(-1).mean()),
            "repeats": runner.prefill(ids) == first == int(got[-1].argmax()) and runner.decode(first) == second,
            "follows": second == int(runner.logits([*ids, first])[-1].argmax()),
            "finite": bool(np.isfinite(runner.logits(ids)).all()),
        }
print(json.dumps(found))
"""


def run_in(python: Path, script: str, *arguments) -> str:
    root = Path(__file__).parents[2]
    settings = {"PYTHONPATH": str(root / "workflow/scripts"), "HALLMARK_TOOLCHAIN": str(python.parents[1])}
    command = [str(python), "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(scope="module")
def converted(toolchain, tiny_llama, tmp_path_factory):
    """Two conversions of one checkpoint, from folders of different names, with different model cards."""
    python, roots = toolchain("llama_cpp"), []
    for number, name in enumerate(("Tiny-Chat-1B", "other")):
        folder = tmp_path_factory.mktemp("gguf")
        source = folder / name
        source.mkdir()
        for path in tiny_llama.iterdir():
            (source / path.name).symlink_to(path)
        (source / "README.md").unlink()
        (source / "README.md").write_text(f"---\nmodel_name: card {number}\nlicense: mit\n---\n")
        (folder / "calibration").mkdir()
        text = json.dumps({"text": "A sentence about nothing in particular. " * 40})
        (folder / "calibration/text.jsonl").write_text(f"{text}\n" * 4)
        variants = ("f32", "imatrix", "q4_k_m_imatrix", *(() if number else ("f16", "q8_0", "q4_k_m")))
        run_in(python, CONVERT, source, folder / f"out-{number}", folder / "calibration", *variants)
        roots.append(folder / f"out-{number}")
    return roots


@pytest.mark.slow
def test_conversions_do_not_depend_on_names(converted):
    one, other = ({path.relative_to(root): path.read_bytes() for path in root.rglob("*.gguf")} for root in converted)
    assert (len(one), len(other)) == (6, 3)
    assert other.items() <= one.items()


@pytest.mark.slow
def test_quantisation_is_what_was_asked(converted, tiny_llama):
    found = {
        name: adapter.inspect(converted[0] / name, tiny_llama, "causal-lm", adapter.SPEC.variants[name].options)
        for name in ("f16", "q8_0", "q4_k_m", "q4_k_m_imatrix")
    }
    for inspection in found.values():
        assert [name for name in SOUND if inspection.metrics[name]] == []
    sizes = [found[name].metrics["bits_per_weight"] for name in ("f16", "q8_0", "q4_k_m")]
    assert sizes == sorted(sizes, reverse=True)
    assert {inspection.metrics["nonfinite"] for inspection in found.values()} == {0}
    assert found["q4_k_m"].facts["types"]["Q4_K"] > 0
    assert found["q4_k_m_imatrix"].facts["importance_matrix"]["file"] == "imatrix.gguf"


@pytest.mark.slow
def test_float_artifacts_answer_like_the_source(toolchain, tiny_llama, converted):
    names = ("f32", "f16", "q8_0", "q4_k_m")
    found = json.loads(run_in(toolchain("llama_cpp"), RUN, tiny_llama, converted[0], *names))
    assert all(answer["repeats"] and answer["follows"] and answer["finite"] for answer in found.values())
    assert all(answer["scores"] and answer["stops"] == [2] for answer in found.values())
    assert found["f32"]["kl"] < 1e-6
    assert found["f16"]["kl"] < 1e-5
    assert found["q8_0"]["kl"] < found["q4_k_m"]["kl"] < 0.1
