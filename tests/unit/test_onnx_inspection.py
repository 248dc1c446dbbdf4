"""What the inspection of an ONNX artifact finds: nothing in a sound one, each seeded defect under its own metric."""

import json
import shutil

import numpy as np
import pytest
from tests.unit import tiny_source
from tests.unit.test_onnx import FLOAT, UINT8, operator, part, tensor, value, write

from hallmark.formats import onnx as adapter

INT8 = 3
COUNTS = (
    "nonfinite", "missing_tensors", "surplus_tensors", "shape_mismatches", "weight_mismatches", "uncompared_share",
    "other_type_share", "vocabulary_mismatch", "special_token_mismatch", "chat_template_mismatch", "rope_mismatch",
    "config_mismatch", "baked_axes", "external_data_mismatch",
)  # fmt: skip
FP32, DYNAMIC, BUILT = (dict(adapter.SPEC.variants[name].options) for name in ("fp32", "int8_dynamic", "int8"))
LOGITS = ("batch", "sequence", tiny_source.VOCABULARY)


def linears(weights):
    """Path of the module -> its matrix, inputs x outputs as exporters store it."""
    return {
        name.removesuffix(".weight"): np.ascontiguousarray(values.T)
        for name, values in weights.items()
        if "_proj" in name
    }


def floats(name, values):
    return tensor(name, FLOAT, values.shape, values.astype("<f4").tobytes())


def module_path(name):
    """`model.layers.0.mlp.up_proj` as exporters write it: `/model/layers.0/mlp/up_proj`."""
    first, _, rest = name.partition(".layers.")
    layer, _, module = rest.partition(".")
    return f"/{first}/layers.{layer}/{module.replace('.', '/')}"


def exported(weights, matrices=None):
    """Tensors and operators of a float graph, as optimum exports it: matrices without names, transposed."""
    matrices = linears(weights) if matrices is None else matrices
    tensors = [floats(name, values) for name, values in weights.items() if "_proj" not in name]
    operators = [operator("Gather", ["model.embed_tokens.weight", "input_ids"], ["x"])]
    for number, (name, values) in enumerate(matrices.items()):
        tensors.append(floats(f"onnx::MatMul_{number}", values))
        operators.append(
            operator("MatMul", ["x", f"onnx::MatMul_{number}"], ["x"]) + part(3, f"{module_path(name)}/MatMul")
        )
    return tensors, operators


def found(folder, tensors, operators, options=FP32, outputs=LOGITS, weights=None):
    """The counts that are not 0, and the facts, of a graph whose other files are the source's."""
    source = tiny_source.write(folder / "source", weights)
    files = folder / "files"
    if not files.exists():
        shutil.copytree(source, files, ignore=shutil.ignore_patterns("*.safetensors"))
    write(files / "model.onnx", tensors, operators, [value("logits", FLOAT, *outputs)])
    inspection = adapter.inspect(files, source, "causal-lm", options)
    assert set(COUNTS) <= set(inspection.metrics)
    return {name: inspection.metrics[name] for name in COUNTS if inspection.metrics[name]}, inspection.facts


def test_a_sound_export_has_no_finding(tmp_path):
    counts, facts = found(tmp_path, *exported(tiny_source.tensors()))
    assert counts == {}
    assert facts["weight_errors"]["float32"]["tensors"] == 20
    assert "matched_by_content" not in facts


def swap_layers(matrices):
    first, second = (f"model.layers.{layer}.mlp.up_proj" for layer in (0, 1))
    matrices[first], matrices[second] = matrices[second], matrices[first]


def leave_untransposed(matrices):
    matrices["model.layers.0.self_attn.o_proj"] = np.ascontiguousarray(matrices["model.layers.0.self_attn.o_proj"].T)


def zero_last_output(matrices):
    matrices["model.layers.1.mlp.down_proj"] = matrices["model.layers.1.mlp.down_proj"].copy()
    matrices["model.layers.1.mlp.down_proj"][:, -1] = 0


def take_anothers(matrices):
    matrices["model.layers.0.self_attn.v_proj"] = np.random.default_rng(1).normal(0, 0.1, (64, 32))


@pytest.mark.parametrize(
    ("spoil", "count"), [(swap_layers, 2), (leave_untransposed, 1), (zero_last_output, 1), (take_anothers, 1)]
)
def test_wrong_weights_are_counted(tmp_path, spoil, count):
    matrices = linears(tiny_source.tensors())
    spoil(matrices)
    assert found(tmp_path, *exported(tiny_source.tensors(), matrices))[0] == {"weight_mismatches": count}


def test_a_lost_matrix_and_one_from_elsewhere_are_counted(tmp_path):
    weights, matrices = tiny_source.tensors(), linears(tiny_source.tensors())
    del matrices["model.layers.1.mlp.up_proj"]
    counts, facts = found(tmp_path, *exported(weights, matrices))
    assert counts == {"missing_tensors": 1}
    assert facts["missing_tensors"] == ["model.layers.1.mlp.up_proj.weight"]
    matrices["model.layers.9.mlp.extra"] = np.ones((7, 9))
    counts, facts = found(tmp_path, *exported(weights, matrices))
    assert counts.pop("uncompared_share") < 0.01
    assert counts == {"missing_tensors": 1, "surplus_tensors": 1}


def test_equal_tensors_may_be_stored_once_and_others_may_not(tmp_path):
    weights = tiny_source.tensors()
    first, second = (f"model.layers.{layer}.input_layernorm.weight" for layer in (0, 1))
    weights[first] = weights[second] = np.ones_like(weights[first])
    stored = {name: values for name, values in weights.items() if name != second}
    counts, facts = found(tmp_path / "equal", *exported(stored), weights=weights)
    assert counts == {}
    assert facts["matched_by_content"] == [f"{first}: {second}, which is equal to it"]
    weights[second] = np.float32(1.001) * weights[first]
    counts, facts = found(tmp_path / "alike", *exported(stored), weights=weights)
    assert counts == {"missing_tensors": 1}
    assert facts["missing_tensors"] == [second]


def test_weights_without_names_are_found_by_their_numbers_and_said_to_be(tmp_path):
    tensors, operators = exported(tiny_source.tensors(), {})
    for number, values in enumerate(linears(tiny_source.tensors()).values()):
        tensors.append(floats(f"w{number}", values))
        operators.append(operator("Gemm", ["x", f"w{number}"], ["x"]))
    counts, facts = found(tmp_path, tensors, operators)
    assert counts == {}
    assert len(facts["matched_by_content"]) == 14


def test_what_might_be_a_weight_in_another_order_is_not_called_wrong(tmp_path):
    matrices = linears(tiny_source.tensors())
    shuffled = matrices.pop("model.layers.0.mlp.up_proj")[::-1].copy()
    tensors, operators = exported(tiny_source.tensors(), matrices)
    tensors.append(floats("shuffled", shuffled))
    operators.append(operator("Gemm", ["x", "shuffled"], ["x"]))
    counts, facts = found(tmp_path, tensors, operators)
    assert counts.keys() == {"uncompared_share"}
    assert set(facts["not_compared"]) == {"shuffled", "model.layers.0.mlp.up_proj.weight"}


def quantised(weights, spoil=None):
    """A graph with int8 matrices, a scale for each output column, as ONNX Runtime's quantiser makes them."""
    tensors, operators = exported(weights, {})
    for number, (name, values) in enumerate(linears(weights).items()):
        scale = (np.abs(values).max(axis=0) / 127).astype("<f4")
        integers, stem = np.round(values / scale).astype("i1"), f"onnx::MatMul_{number}"
        if spoil and number == 3:
            scale = spoil(scale)
        tensors += [
            tensor(f"{stem}_quantized", INT8, integers.shape, integers.tobytes()),
            floats(f"{stem}_scale", scale),
            tensor(f"{stem}_zero_point", INT8, scale.shape, bytes(len(scale))),
        ]
        inputs = ["x", f"{stem}_quantized", "zero", f"{stem}_zero_point"]
        operators.append(operator("MatMulInteger", inputs, ["x"]) + part(3, f"{module_path(name)}/MatMul_quant"))
    return tensors, operators


def test_int8_with_the_scales_of_its_columns_is_sound_and_with_others_is_not(tmp_path):
    share = tiny_source.VOCABULARY * tiny_source.HIDDEN  # the embedding stays float32 here
    counts, facts = found(tmp_path, *quantised(tiny_source.tensors()), DYNAMIC)
    assert counts.keys() == {"other_type_share"}
    assert facts["other_types"] == {"float32": share}
    counts, _ = found(tmp_path, *quantised(tiny_source.tensors(), lambda scale: np.roll(scale, 1)), DYNAMIC)
    assert counts["weight_mismatches"] == 1


def built(weights, order="qkv", spoil=None, block=32):
    """A graph as onnxruntime-genai's builder makes it: 8 bits in blocks, queries, keys and values in one matrix."""
    joined = dict(weights)
    for layer in range(tiny_source.LAYERS):
        stem = f"model.layers.{layer}.self_attn"
        parts = [joined.pop(f"{stem}.{kind}_proj.weight") for kind in "qkv"]
        joined[f"{stem}.qkv_proj.weight"] = np.concatenate([parts["qkv".index(kind)] for kind in order])
    tensors = [floats(name, values) for name, values in joined.items() if values.ndim == 1 or "embed" in name]
    operators = [operator("Gather", ["model.embed_tokens.weight", "input_ids"], ["x"])]
    for name, values in joined.items():
        if "_proj" not in name:
            continue
        name = name.replace("self_attn", "attn").replace(".weight", ".MatMul.weight")
        blocks = values.reshape(len(values), -1, block)
        scale = (np.abs(blocks).max(axis=2) / 127).astype("<f4")
        bytes_ = (np.round(blocks / scale[:, :, None]) + 128).astype("u1")
        if spoil and "0.mlp.up" in name:
            scale = spoil(scale)
        tensors += [tensor(f"{name}_Q8", UINT8, bytes_.shape, bytes_.tobytes()), floats(f"{name}_scales", scale)]
        told = {"K": values.shape[1], "N": len(values), "bits": 8, "block_size": block}
        operators.append(operator("MatMulNBits", ["x", f"{name}_Q8", f"{name}_scales"], ["x"], **told))
    return tensors, operators


def test_fused_blocks_are_taken_apart_and_their_order_and_scales_are_checked(tmp_path):
    weights = tiny_source.tensors()
    counts, facts = found(tmp_path, *built(weights), BUILT)
    assert counts.keys() == {"other_type_share"}
    assert facts["weight_errors"]["int8/32"]["tensors"] == 10
    assert found(tmp_path, *built(weights, order="qvk"), BUILT)[0]["weight_mismatches"] == 2
    counts, _ = found(tmp_path, *built(weights, spoil=lambda scale: np.repeat(scale[:, :1], 2, axis=1)), BUILT)
    assert counts["weight_mismatches"] == 1


def with_rope(base, scaled=1.0):
    table = np.outer(np.arange(4), base ** (-np.arange(0, tiny_source.HEAD, 2) / tiny_source.HEAD) / scaled)
    inputs = ["q", "k", "v", "past_k", "past_v", "len", "total", "cos", "sin"]
    tensors, operators = exported(tiny_source.tensors())
    tensors += [floats("cos", np.cos(table)), floats("sin", np.sin(table))]
    return tensors, [*operators, operator("GroupQueryAttention", inputs, ["y"])]


def test_rotary_tables_are_those_of_the_configuration(tmp_path):
    counts, facts = found(tmp_path, *with_rope(10000.0))
    assert (counts, facts["rope_found_in"]) == ({}, ["sin"])
    assert found(tmp_path, *with_rope(500000.0))[0] == {"rope_mismatch": 1}
    assert found(tmp_path, *with_rope(10000.0, scaled=2.0))[0] == {"rope_mismatch": 1}


def test_every_position_of_both_rotary_tables_is_compared(tmp_path):
    tensors, operators = with_rope(10000.0)
    angles = np.outer(np.arange(4), 10000.0 ** (-np.arange(0, tiny_source.HEAD, 2) / tiny_source.HEAD))
    late = np.cos(angles)
    late[3] = late[2]
    counts, facts = found(tmp_path, [*tensors[:-2], floats("cos", late), tensors[-1]], operators)
    assert counts == {"rope_mismatch": 1}
    assert facts["rope_mismatch"] == ["cos: the cos of position 3 is not the source's"]


def test_the_norms_epsilon_in_the_graph_is_the_sources(tmp_path):
    tensors, operators = exported(tiny_source.tensors())
    added = operator("Add", ["x", "eps"], ["x"]) + part(3, "/model/norm/Add")
    assert found(tmp_path, [*tensors, floats("eps", np.float32([1e-5]))], [*operators, added])[0] == {}
    spoilt = found(tmp_path, [*tensors, floats("eps", np.float32([1e-2]))], [*operators, added])
    assert spoilt[0] == {"config_mismatch": 1}
    assert "norm_epsilon: 0.01 at 1 norms" in spoilt[1]["config_mismatch"][0]


def test_special_tokens_that_are_read_as_text_are_found(tmp_path):
    found(tmp_path, *exported(tiny_source.tensors()))
    path = tmp_path / "files/tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"added_tokens": []}))
    assert found(tmp_path, *exported(tiny_source.tensors()))[0] == {"special_token_mismatch": 1}


def test_baked_dimensions_and_data_that_no_tensor_uses_are_counted(tmp_path):
    sound = exported(tiny_source.tensors())
    assert found(tmp_path, *sound, outputs=(1, 16, 40))[0] == {"baked_axes": 2}
    (tmp_path / "files/model.onnx.data").write_bytes(b"left over")
    counts, facts = found(tmp_path, *sound)
    assert counts == {"external_data_mismatch": 1}
    assert facts["external_data_mismatch"] == ["model.onnx.data: not used by model.onnx"]


def test_another_number_of_logits_is_counted(tmp_path):
    assert found(tmp_path, *exported(tiny_source.tensors()), outputs=("b", "s", 32))[0] == {"vocabulary_mismatch": 1}


def edit(files, name, change):
    content = json.loads((files / name).read_text())
    change(content)
    (files / name).write_text(json.dumps(content))


CARRIED = {
    "template": ("chat_template_mismatch", lambda f: (f / "chat_template.jinja").write_text("{{ messages }}")),
    "no_template": ("chat_template_mismatch", lambda f: (f / "chat_template.jinja").unlink()),
    "token": ("vocabulary_mismatch", lambda f: tiny_source.write_tokenizer(f, [*tiny_source.texts()[:-1], "other"])),
    "no_start": ("special_token_mismatch", lambda f: tiny_source.write_tokenizer(f, starts=False)),
    "epsilon": ("config_mismatch", lambda f: edit(f, "config.json", lambda c: c.update(rms_norm_eps=1e-6))),
    "context": ("config_mismatch", lambda f: edit(f, "config.json", lambda c: c.pop("max_position_embeddings"))),
    "genai_heads": (
        "config_mismatch",
        lambda f: (f / "genai_config.json").write_text(
            json.dumps({"model": {"eos_token_id": 2, "decoder": {"num_key_value_heads": 4}}})
        ),
    ),
    "genai_stop": (
        "special_token_mismatch",
        lambda f: (f / "genai_config.json").write_text(json.dumps({"model": {"eos_token_id": 3}})),
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_files_that_were_changed_on_the_way_are_counted(tmp_path, name):
    metric, spoil = CARRIED[name]
    files = tiny_source.write(tmp_path / "files")
    (files / "model.safetensors").unlink()
    spoil(files)
    assert found(tmp_path, *exported(tiny_source.tensors()))[0] == {metric: 1}


def test_every_stop_token_of_a_list_is_kept(tmp_path):
    files = tiny_source.write(tmp_path / "files")
    source = tiny_source.write(tmp_path / "source")
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    write(files / "model.onnx", *exported(tiny_source.tensors()), [value("logits", FLOAT, *LOGITS)])
    inspection = adapter.inspect(files, source, "causal-lm", FP32)
    assert inspection.facts["special_token_mismatch"][-1] == "stop token 3 is lost"
