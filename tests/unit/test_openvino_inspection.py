"""What the inspection of an OpenVINO artifact finds: nothing in a sound one, seeded defects under their own metrics."""

import html
import json
import shutil

import numpy as np
import pytest
from tests.unit import tiny_source
from tests.unit.test_openvino import write_ir

from hallmark import openvino_inspection, openvino_weights
from hallmark.formats import openvino as adapter

COUNTS = (
    "nonfinite", "missing_tensors", "surplus_tensors", "shape_mismatches", "weight_mismatches", "uncompared_share",
    "other_type_share", "vocabulary_mismatch", "special_token_mismatch", "chat_template_mismatch", "rope_mismatch",
    "config_mismatch", "baked_axes",
)  # fmt: skip
FP16, INT8, INT4, AWQ = (dict(adapter.SPEC.variants[name].options) for name in ("fp16", "int8", "int4", "int4_awq"))
UP, DOWN = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"


def half(weights):
    """Constants of a float16 IR: the exporter keeps names of matrices and loses those of norms."""
    found = []
    for number, (name, values) in enumerate(weights.items()):
        kept = f"self.{name.removesuffix('weight')}_openvino_orig_weight"
        name, shape = (kept, values.shape) if values.ndim > 1 else (f"Constant_{number}", (1, 1, len(values)))
        found.append((name, "f16", shape, values.astype("<f2").tobytes()))
    return found


def compressed(weights, bits=8, group=None, spoil=None):
    """Constants of a compressed IR: a scale and a zero point for each row, or for each group of a row."""
    found = []
    for number, (name, values) in enumerate(weights.items()):
        if values.ndim == 1:
            found.append((f"Constant_{number}", "f32", (1, 1, len(values)), values.astype("<f4").tobytes()))
            continue
        width = group if group and "embed" not in name else values.shape[1]
        levels = 2 ** (bits if width == group or not group else 8) - 1
        groups = values.reshape(len(values), -1, width)
        low, high = np.minimum(groups.min(axis=2), 0), np.maximum(groups.max(axis=2), 0)
        scale = ((high - low) / levels).astype("<f2")
        with np.errstate(invalid="ignore"):  # a row of zeros has no scale
            zero = np.nan_to_num(np.round(-low / scale))
            integers = np.clip(np.round(groups / scale[:, :, None]) + zero[:, :, None], 0, levels).astype("u1")
        if spoil and name == UP:
            scale = spoil(scale)
        kind = "u4" if levels == 15 else "u8"
        shape = groups.shape if width == group else values.shape
        of_groups = (*scale.shape, 1) if width == group else scale.shape
        found += [
            (f"self.{name}", kind, shape, packed(integers, kind)),
            (f"self.{name}/zero_point", kind, of_groups, packed(zero.astype("u1"), kind)),
            (f"self.{name}/scale", "f16", of_groups, scale.tobytes()),
        ]
    return found


def packed(integers, kind):
    flat = integers.ravel()
    return (flat[::2] | flat[1::2] << 4).tobytes() if kind == "u4" else flat.tobytes()


def found(folder, constants, options, weights=None, **ports):
    """The counts that are not 0, and the facts, of an IR whose other files are the source's."""
    source = tiny_source.write(folder / "source", weights)
    files = folder / "files"
    if not files.exists():
        shutil.copytree(source, files, ignore=shutil.ignore_patterns("*.safetensors"))
    if not (files / "openvino_tokenizer.xml").exists():
        write_tokenizer(files)
    (files / "runtime.json").write_text(json.dumps({"device": "CPU", "properties": {}}))
    outputs = {"logits": ports.get("logits", (-1, -1, tiny_source.VOCABULARY))}
    states = ports.get("states", ["past.0"])
    write_ir(files, constants, states=states, outputs=outputs, readers=ports.get("readers"))
    inspection = adapter.inspect(files, source, "causal-lm", options)
    assert set(COUNTS) <= set(inspection.metrics)
    return {name: inspection.metrics[name] for name in COUNTS if inspection.metrics[name]}, inspection


def write_tokenizer(files, template=tiny_source.TEMPLATE, bos=1):
    template = html.escape(template).replace("\n", "&#10;")
    notes = f'<rt_info><bos_token_id value="{bos}"/><chat_template value="{template}"/></rt_info>'
    write_ir(files, [], notes=notes, name="openvino_tokenizer")


@pytest.mark.parametrize(
    ("made", "options", "kind"),
    [
        (half, FP16, "f16"),
        (compressed, INT8, "u8 row"),
        (lambda weights: compressed(weights, 4, 32), INT4, "u4 group 32"),
    ],
)
def test_a_sound_ir_has_no_finding(tmp_path, made, options, kind):
    counts, inspection = found(tmp_path, made(tiny_source.tensors()), options)
    assert counts == {}
    assert inspection.metrics["stateful"] == 1
    assert inspection.facts["weight_errors"][kind]["tensors"] >= 14
    assert len(inspection.facts["matched_by_content"]) == 5  # norms, whose names are lost


def swap_layers(weights):
    other = UP.replace("layers.0", "layers.1")
    weights[UP], weights[other] = weights[other], weights[UP]


def transpose(weights):
    name = "model.layers.0.self_attn.o_proj.weight"
    weights[name] = np.ascontiguousarray(weights[name].T)


def zero_last_row(weights):
    weights[DOWN] = weights[DOWN].copy()
    weights[DOWN][-1] = 0


@pytest.mark.parametrize(("spoil", "count"), [(swap_layers, 2), (transpose, 1), (zero_last_row, 1)])
@pytest.mark.parametrize("group", [None, 32])
def test_wrong_weights_are_counted(tmp_path, spoil, count, group):
    weights = tiny_source.tensors()
    spoil(weights)
    constants = compressed(weights, 4 if group else 8, group)
    assert found(tmp_path, constants, INT4 if group else INT8)[0] == {"weight_mismatches": count}


def test_scales_of_another_row_or_group_are_found(tmp_path):
    weights = tiny_source.tensors()
    of_row = compressed(weights, spoil=lambda scale: np.roll(scale, 1, axis=0))
    assert found(tmp_path, of_row, INT8)[0] == {"weight_mismatches": 1}
    of_group = compressed(weights, 4, 32, spoil=lambda scale: np.repeat(scale[:, :1], 2, axis=1))
    assert found(tmp_path, of_group, INT4)[0] == {"weight_mismatches": 1}


def test_a_lost_matrix_is_named(tmp_path):
    weights = tiny_source.tensors()
    del weights[DOWN]
    counts, inspection = found(tmp_path, half(weights), FP16)
    assert counts == {"missing_tensors": 1}
    assert inspection.facts["missing_tensors"] == [DOWN]


def test_factors_of_one_may_be_left_out_and_others_may_not(tmp_path):
    weights = tiny_source.tensors()
    name = "model.layers.1.input_layernorm.weight"
    stored = {other: values for other, values in weights.items() if other != name}
    weights[name] = np.ones_like(weights[name])
    assert found(tmp_path / "one", half(stored), FP16, weights=weights)[0] == {}
    weights[name][-1] = 1.01
    assert found(tmp_path / "more", half(stored), FP16, weights=weights)[0] == {"missing_tensors": 1}


def scaled(weights, factor, back=True):
    """What AWQ does to the two matrices around a product."""
    weights[UP] = weights[UP] * factor[:, None]
    if back:
        weights[DOWN] = weights[DOWN] / factor
    return weights


def test_factors_that_awq_moves_have_to_cancel(tmp_path):
    factor = np.exp(np.random.default_rng(3).normal(0, 0.7, tiny_source.INNER)).astype(np.float32)
    sound = compressed(scaled(tiny_source.tensors(), factor), 4, 32)
    assert found(tmp_path, sound, AWQ)[0] == {}
    assert found(tmp_path, sound, INT4)[0] == {"weight_mismatches": 2}  # no recipe asked for it
    lost = compressed(scaled(tiny_source.tensors(), factor, back=False), 4, 32)
    assert found(tmp_path, lost, AWQ)[0] == {"weight_mismatches": 1}


def test_the_type_asked_for_is_held_against_the_realised_one(tmp_path):
    counts, inspection = found(tmp_path, compressed(tiny_source.tensors()), FP16)
    assert counts == {"other_type_share": 1.0}
    assert set(inspection.facts["other_types"]) == {"u8"}


def test_rotary_frequencies_are_those_of_the_configuration(tmp_path):
    def with_rope(base):
        values = (base ** (-np.arange(0, tiny_source.HEAD, 2) / tiny_source.HEAD)).astype("<f2")
        return [*half(tiny_source.tensors()), ("rotary", "f16", (1, len(values), 1), values.tobytes())]

    counts, inspection = found(tmp_path, with_rope(10000.0), FP16)
    assert (counts, inspection.facts["rope_found_in"]) == ({}, ["rotary"])
    assert found(tmp_path, with_rope(500000.0), FP16)[0] == {"rope_mismatch": 1}


def test_norms_that_lost_their_names_are_known_by_what_reads_them(tmp_path):
    weights = tiny_source.tensors()
    norms = {f"Constant_{number}": name for number, name in enumerate(weights) if weights[name].ndim == 1}
    readers = {
        constant: [("Multiply", f"__module.{name.removesuffix('.weight')}/aten::mul/Multiply_1")]
        for constant, name in norms.items()
    }
    assert found(tmp_path, half(weights), FP16, readers=readers)[0] == {}
    first, second = list(norms.values())[:2]
    swapped = weights | {first: weights[second], second: weights[first]}
    assert found(tmp_path, half(swapped), FP16, readers=readers)[0] == {"weight_mismatches": 2}


@pytest.mark.parametrize(("epsilon", "counts"), [(1e-5, {}), (1e-2, {"config_mismatch": 1})])
def test_the_norms_epsilon_in_the_graph_is_the_sources(tmp_path, epsilon, counts):
    constants = [*half(tiny_source.tensors()), ("Constant_91", "f32", (1, 1, 1), np.float32([epsilon]).tobytes())]
    readers = {"Constant_91": [("Add", "__module.model.norm/aten::add/Add")]}
    assert found(tmp_path, constants, FP16, readers=readers)[0] == counts


def test_baked_dimensions_a_missing_state_and_other_logits_are_told(tmp_path):
    constants = half(tiny_source.tensors())
    assert found(tmp_path, constants, FP16, logits=(1, 128, 40))[0] == {"baked_axes": 2}
    assert found(tmp_path, constants, FP16, states=[])[1].metrics["stateful"] == 0
    assert found(tmp_path, constants, FP16, logits=(-1, -1, 39))[0] == {"vocabulary_mismatch": 1}


@pytest.mark.parametrize(
    ("metric", "noted"),
    [
        ("chat_template_mismatch", {"template": tiny_source.TEMPLATE.replace("\n", " ")}),
        ("chat_template_mismatch", {"template": ""}),
        ("special_token_mismatch", {"bos": 0}),
    ],
)
def test_notes_of_the_converted_tokenizer_are_compared(tmp_path, metric, noted):
    source = tiny_source.write(tmp_path / "source")
    shutil.copytree(source, tmp_path / "files", ignore=shutil.ignore_patterns("*.safetensors"))
    write_tokenizer(tmp_path / "files", **noted)
    assert found(tmp_path, half(tiny_source.tensors()), FP16)[0] == {metric: 1}


def test_signed_numbers_of_4_bits_are_read_as_such():
    data = np.array([0x8F, 0x70], np.uint8)
    assert openvino_weights.unpacked(data, "i4").tolist() == [-1, -8, 0, 7]
    assert openvino_weights.unpacked(data, "u4").tolist() == [15, 8, 0, 7]


@pytest.mark.parametrize(("settings", "counts"), [({"pooling": "mean"}, 0), ({"pooling": "cls", "max_tokens": 64}, 2)])
def test_an_encoders_pooling_and_longest_input_are_the_sources(tmp_path, settings, counts):
    source = tiny_source.write(tmp_path / "source")
    (tmp_path / "runtime.json").write_text(json.dumps(settings))
    assert len(openvino_inspection.pooling(tmp_path, source)) == counts
