"""What the inspection of a GGUF file finds: nothing in a sound one, and each seeded defect under its own metric."""

import json

import numpy as np
import pytest
from gguf.quants import quantize
from tests.unit import tiny_source
from tests.unit.gguf_files import TYPES, write

from hallmark import gguf_inspection

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
COUNTS = (
    "nonfinite", "missing_tensors", "surplus_tensors", "shape_mismatches", "weight_mismatches", "uncompared_share",
    "other_type_share", "vocabulary_mismatch", "special_token_mismatch", "chat_template_mismatch", "rope_mismatch",
    "config_mismatch",
)  # fmt: skip


def permuted(weights, heads):
    """What llama.cpp's converter does to queries and keys of Llama (LlamaModel.permute)."""
    return weights.reshape(heads, 2, len(weights) // heads // 2, -1).swapaxes(1, 2).reshape(weights.shape)


def converted(weights):
    """The checkpoint's weights under the names, and in the order, that llama.cpp's converter gives them."""
    made = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for layer in range(tiny_source.LAYERS):
        for module, name in NAMES.items():
            values = weights[f"model.layers.{layer}.{module}.weight"]
            heads = {"attn_q": tiny_source.HEADS, "attn_k": tiny_source.KV_HEADS}.get(name)
            made[f"blk.{layer}.{name}.weight"] = permuted(values, heads) if heads else values
    return made


def metadata():
    """Keys and values of a sound file."""
    return {
        "llama.block_count": 2, "llama.context_length": 512, "llama.embedding_length": 64,
        "llama.feed_forward_length": 96, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": 16, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tiny_source.texts(),
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": tiny_source.TEMPLATE,
    }  # fmt: skip


def found(folder, stored=None, keys=None, kind=TYPES.Q8_0, asked=None, **config):
    """The counts that are not 0, and the facts, of a file beside a source with `config`."""
    source = tiny_source.write(folder / "source", **config)
    path = write(folder / "model.gguf", stored or converted(tiny_source.tensors()), keys or metadata(), kind)
    inspection = gguf_inspection.inspect(path, source, asked or kind.name)
    assert set(COUNTS) <= set(inspection.metrics)
    return {name: inspection.metrics[name] for name in COUNTS if inspection.metrics[name]}, inspection.facts


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"])
def test_a_sound_file_has_no_finding(tmp_path, kind):
    counts, facts = found(tmp_path, kind=TYPES[kind])
    assert counts == {}
    assert facts["weight_errors"][kind]["tensors"] >= 15


def swap_layers(stored):
    stored["blk.0.ffn_up.weight"], stored["blk.1.ffn_up.weight"] = (
        stored["blk.1.ffn_up.weight"], stored["blk.0.ffn_up.weight"],
    )  # fmt: skip


def swap_roles(stored):
    stored["blk.0.ffn_up.weight"] = stored["blk.0.ffn_gate.weight"]


def transpose(stored):
    stored["blk.0.attn_output.weight"] = np.ascontiguousarray(stored["blk.0.attn_output.weight"].T)


def leave_in_order(stored):
    stored["blk.1.attn_q.weight"] = tiny_source.tensors()["model.layers.1.self_attn.q_proj.weight"]


def zero_last_row(stored):
    stored["blk.1.ffn_down.weight"] = stored["blk.1.ffn_down.weight"].copy()
    stored["blk.1.ffn_down.weight"][-1] = 0


def shift_rows(stored):
    stored["token_embd.weight"] = np.roll(stored["token_embd.weight"], 1, axis=0)


def take_anothers(stored):
    stored["blk.0.attn_v.weight"] = np.random.default_rng(8).normal(0, 0.1, (32, 64)).astype(np.float32)


def take_anothers_norm(stored):
    stored["output_norm.weight"] = stored["output_norm.weight"] + np.float32(1e-4)


def share_scales(stored):
    """Half of the blocks have the scale of their neighbour, as with a group size of 64."""
    blocks = quantize(stored["blk.0.ffn_gate.weight"], TYPES.Q8_0).reshape(-1, 2, 34)
    blocks[:, 1, :2] = blocks[:, 0, :2]
    stored["blk.0.ffn_gate.weight"] = blocks.reshape(96, 68)


WRONG_WEIGHTS = {
    swap_layers: 2, swap_roles: 1, transpose: 1, leave_in_order: 1, zero_last_row: 1, shift_rows: 1, take_anothers: 1,
    take_anothers_norm: 1, share_scales: 1,
}  # fmt: skip


@pytest.mark.parametrize("spoil", WRONG_WEIGHTS, ids=lambda spoil: spoil.__name__)
def test_wrong_weights_are_counted_and_named(tmp_path, spoil):
    stored = converted(tiny_source.tensors())
    spoil(stored)
    counts, facts = found(tmp_path, stored)
    assert counts == {"weight_mismatches": WRONG_WEIGHTS[spoil]}
    assert len(facts["weight_mismatches"]) == WRONG_WEIGHTS[spoil]


def test_four_bits_do_not_hide_a_zero_row_or_shared_scales(tmp_path):
    stored = converted(tiny_source.tensors())
    zero_last_row(stored)
    blocks = quantize(stored["blk.0.ffn_gate.weight"], TYPES.Q4_0).reshape(-1, 2, 18)
    blocks[:, 1, :2] = blocks[:, 0, :2]
    stored["blk.0.ffn_gate.weight"] = blocks.reshape(96, 36)
    assert found(tmp_path, stored, kind=TYPES.Q4_0)[0] == {"weight_mismatches": 2}


def test_lost_added_and_misshapen_tensors_are_counted(tmp_path):
    stored = converted(tiny_source.tensors())
    stored["blk.7.ffn_up.weight"] = stored.pop("blk.1.ffn_up.weight")
    stored["blk.0.attn_k.weight"] = stored["blk.0.attn_k.weight"][:16]
    counts, facts = found(tmp_path, stored)
    uncompared = counts.pop("uncompared_share")
    assert counts == {"missing_tensors": 1, "surplus_tensors": 1, "shape_mismatches": 1}
    assert facts["missing_tensors"] == ["model.layers.1.mlp.up_proj.weight"]
    assert facts["surplus_tensors"] == ["blk.7.ffn_up.weight"]
    assert 0 < uncompared < 0.2


def test_a_second_copy_of_tied_weights_is_compared(tmp_path):
    stored = converted(tiny_source.tensors())
    assert found(tmp_path, stored | {"output.weight": stored["token_embd.weight"]})[0] == {}
    wrong = stored | {"output.weight": np.roll(stored["token_embd.weight"], 1, axis=0)}
    assert found(tmp_path, wrong)[0] == {"weight_mismatches": 1}


@pytest.mark.parametrize("doubled", [False, True])
def test_doubled_experts_are_found(tmp_path, doubled):
    experts, weights = 3, tiny_source.tensors()
    generator, joined = np.random.default_rng(9), {}
    for part, name in (("w1", "ffn_gate_exps"), ("w2", "ffn_down_exps"), ("w3", "ffn_up_exps")):
        shape = (64, 96) if part == "w2" else (96, 64)
        made = [generator.normal(0, 0.1, shape).astype(np.float32) for _ in range(experts)]
        for number, values in enumerate(made):
            weights[f"model.layers.0.block_sparse_moe.experts.{number}.{part}.weight"] = values
        if doubled:
            made[2] = made[1]
        joined[f"blk.0.{name}.weight"] = np.stack(made)
    source = tiny_source.write(tmp_path / "source", weights, num_local_experts=experts)
    stored = converted(tiny_source.tensors()) | joined
    keys = metadata() | {"llama.expert_count": experts}
    inspection = gguf_inspection.inspect(write(tmp_path / "m.gguf", stored, keys), source, "Q8_0")
    assert inspection.metrics["missing_tensors"] == inspection.metrics["surplus_tensors"] == 0
    assert inspection.metrics["weight_mismatches"] == (3 if doubled else 0)


WRONG_KEYS = {
    "token_text": ({"tokenizer.ggml.tokens": [*tiny_source.texts()[:-1], "other"]}, {"vocabulary_mismatch": 1}),
    "token_lost": ({"tokenizer.ggml.tokens": tiny_source.texts()[:-1]}, {"vocabulary_mismatch": 1}),
    "token_added": ({"tokenizer.ggml.tokens": [*tiny_source.texts(), "new"]}, {"vocabulary_mismatch": 1}),
    "padding": ({"tokenizer.ggml.tokens": [*tiny_source.texts(), "[PAD40]"]}, {}),
    "bos": ({"tokenizer.ggml.bos_token_id": 0}, {"special_token_mismatch": 1}),
    "eos": ({"tokenizer.ggml.eos_token_id": 3}, {"special_token_mismatch": 1}),
    "add_bos": ({"tokenizer.ggml.add_bos_token": False}, {"special_token_mismatch": 1}),
    "template": ({"tokenizer.chat_template": tiny_source.TEMPLATE + " "}, {"chat_template_mismatch": 1}),
    "no_template": ({"tokenizer.chat_template": ""}, {"chat_template_mismatch": 1}),
    "rope_base": ({"llama.rope.freq_base": 500000.0}, {"rope_mismatch": 1}),
    "rope_scaled": ({"llama.rope.scaling.type": "linear"}, {"rope_mismatch": 1}),
    "context": ({"llama.context_length": 1024}, {"config_mismatch": 1}),
    "epsilon": ({"llama.attention.layer_norm_rms_epsilon": 1e-6}, {"config_mismatch": 1}),
    "heads": ({"llama.attention.head_count": 8, "llama.attention.head_count_kv": 4}, {"config_mismatch": 2}),
}


@pytest.mark.parametrize("name", WRONG_KEYS)
def test_wrong_metadata_is_counted(tmp_path, name):
    keys, expected = WRONG_KEYS[name]
    assert found(tmp_path, keys=metadata() | keys)[0] == expected


@pytest.mark.parametrize(
    ("config", "keys", "lost"),
    [
        ({"rope_theta": 500000.0}, {}, 1),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, {}, 2),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, {}, 1),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, {}, 2),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}},
            {"type": "yarn", "factor": 2.0, "original_context_length": 256},
            0,
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}},
            {"type": "yarn", "factor": 4.0, "original_context_length": 256},
            1,
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
            {"type": "linear", "factor": 4.0},
            0,
        ),
    ],
)
def test_rotary_settings_that_are_left_out_or_changed_are_counted(tmp_path, config, keys, lost):
    stated = metadata() | {f"llama.rope.scaling.{key}": value for key, value in keys.items()}
    assert found(tmp_path, keys=stated, **config)[0] == ({"rope_mismatch": lost} if lost else {})


def test_stop_tokens_beyond_the_first_are_not_lost(tmp_path):
    source = tiny_source.write(tmp_path / "source")
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    stored = converted(tiny_source.tensors())
    lost = gguf_inspection.inspect(write(tmp_path / "one.gguf", stored, metadata()), source, "Q8_0")
    assert lost.facts["special_token_mismatch"] == ["stop token 3 is lost"]
    kept = metadata() | {"tokenizer.ggml.eot_token_id": 3}
    assert gguf_inspection.inspect(write(tmp_path / "two.gguf", stored, kept), source, "Q8_0").metrics[
        "special_token_mismatch"
    ] == 0  # fmt: skip
    # llama.cpp knows some ends by their text, whatever the file says.
    names = [*tiny_source.texts()[:3], "<|im_end|>", *tiny_source.texts()[4:]]
    tiny_source.write_tokenizer(source, names)
    known = metadata() | {"tokenizer.ggml.tokens": names}
    assert gguf_inspection.inspect(write(tmp_path / "three.gguf", stored, known), source, "Q8_0").metrics[
        "special_token_mismatch"
    ] == 0  # fmt: skip


def test_the_share_in_another_type_than_asked_is_told(tmp_path):
    counts, facts = found(tmp_path, kind=TYPES.Q5_0, asked="Q4_K_M")
    assert counts == {"other_type_share": 1.0}
    assert set(facts["other_types"]) == {"Q5_0"}


def test_an_architecture_that_is_not_understood_is_never_called_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_inspection.gguf_census, "UNDERSTOOD", frozenset())
    stored = converted(tiny_source.tensors())
    assert found(tmp_path, stored)[0] == {}  # each weight agrees in one of the known orders
    take_anothers(stored)
    counts, facts = found(tmp_path, stored)
    assert counts.keys() == {"uncompared_share"}
    assert facts["not_compared"][0].startswith("blk.0.attn_v.weight: may hold")


def test_merges_in_another_order_are_found(tmp_path):
    source = tiny_source.write(tmp_path / "source")
    content = json.loads((source / "tokenizer.json").read_text())
    content["model"]["merges"] = ["a b", "c d"]
    (source / "tokenizer.json").write_text(json.dumps(content))
    for merges, count in ((["a b", "c d"], 0), (["c d", "a b"], 1)):
        keys = metadata() | {"tokenizer.ggml.merges": merges}
        path = write(tmp_path / "model.gguf", converted(tiny_source.tensors()), keys)
        assert gguf_inspection.inspect(path, source, "Q8_0").metrics["vocabulary_mismatch"] == count


def test_an_encoders_pooling_is_the_sources(tmp_path):
    for number, count in ((1, 0), (2, 1)):
        assert found(tmp_path, keys=metadata() | {"llama.pooling_type": number})[0] == (
            {"config_mismatch": count} if count else {}
        )
