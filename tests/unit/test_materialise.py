"""GGUFs turned back into checkpoints: names, values and tokenizers, for both architectures, on files made here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from safetensors.numpy import load_file

from hallmark import gguf_facts, materialise, rebuilt_tokenizer
from hallmark.source_errors import SourceError

ROOT = Path(__file__).parents[2]
WIDTH, HEADS, KV_HEADS, LAYERS, INNER = 64, 4, 2, 2, 96
Weights = dict[str, np.ndarray]


def byte_level_vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Tokens, kinds and merges of a small byte-level BPE: two control tokens, the 256 bytes, three merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + number) for number in range(len(others))]
    merges = ["t h", "th e", "Ġ the"]
    tokens = ["<|endoftext|>", "<|im_end|>", *alphabet, *(merge.replace(" ", "") for merge in merges)]
    return tokens, [3, 3] + [1] * (len(tokens) - 2), merges


def pieces() -> tuple[list[str], list[float], list[int]]:
    """Pieces, scores and kinds of a small SentencePiece BPE: control tokens, runs of spaces, bytes, merged pieces."""
    control, runs = ["<pad>", "<eos>", "<bos>", "<unk>"], ["\n", "  ", "   "]
    merged, single = ["▁t", "he", "▁the"], ["▁", "t", "h", "e", "x"]
    tokens = [*control, *runs, *(f"<0x{byte:02X}>" for byte in range(256)), *merged, *single]
    scores = [-1000.0] * 7 + [0.0] * 256 + [-float(number) for number in range(len(merged) + len(single))]
    return tokens, scores, [3] * 4 + [4] * 3 + [6] * 256 + [1] * (len(merged) + len(single))


def tensor_shapes(arch: str, vocabulary: int) -> dict[str, tuple[int, ...]]:
    head = WIDTH // HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        block = {
            "attn_q": (HEADS * head, WIDTH),
            "attn_k": (KV_HEADS * head, WIDTH),
            "attn_v": (KV_HEADS * head, WIDTH),
            "attn_output": (WIDTH, HEADS * head),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
            "attn_norm": (WIDTH,),
            "ffn_norm": (WIDTH,),
        }
        if arch == "gemma3":
            block |= {"attn_q_norm": (head,), "attn_k_norm": (head,)}
            block |= {"post_attention_norm": (WIDTH,), "post_ffw_norm": (WIDTH,)}
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes


def write_gguf(path: Path, arch: str = "llama", drop: str = "", extra: str = "") -> Weights:
    """A small GGUF, matrices in Q8_0; returns the values that it stands for."""
    writer = GGUFWriter(path, arch)
    head = WIDTH // HEADS
    for key, value in {"context_length": 128, "embedding_length": WIDTH, "block_count": LAYERS,
                       "feed_forward_length": INNER, "attention.head_count": HEADS,
                       "attention.head_count_kv": KV_HEADS, "attention.sliding_window": 32,
                       "attention.key_length": head}.items():  # fmt: skip
        if arch == "gemma3" or key not in ("attention.sliding_window", "attention.key_length"):
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{arch}.rope.freq_base", 10000.0)
    vocabulary = _add_tokenizer(writer, arch)
    random = np.random.default_rng(0)
    values: Weights = {}
    for name, shape in tensor_shapes(arch, vocabulary).items():
        if name == drop:
            continue
        weights = random.standard_normal(shape).astype(np.float32)
        kind = GGMLQuantizationType.Q8_0 if len(shape) == 2 else GGMLQuantizationType.F32
        stored = quantize(weights, kind)
        writer.add_tensor(name, stored, raw_dtype=kind)
        values[name] = dequantize(stored, kind)
    if extra:
        writer.add_tensor(extra, np.zeros(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def _add_tokenizer(writer: GGUFWriter, arch: str) -> int:
    if arch == "gemma3":
        tokens, scores, kinds = pieces()
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores(scores)
        writer.add_add_space_prefix(False)
        writer.add_add_bos_token(True)
        ids = {"padding": 0, "eos": 1, "bos": 2, "unknown": 3}
    else:
        tokens, kinds, merges = byte_level_vocabulary()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_merges(merges)
        writer.add_chat_template("{{ messages }}")
        ids = {"bos": 0, "eos": 1}
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    for name, number in ids.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", number)
    return len(tokens)


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer needs libraries of the toolchain; here only its files are written."""
    monkeypatch.setattr(rebuilt_tokenizer, "prove", lambda fields, folder: None)
    monkeypatch.setattr(rebuilt_tokenizer, "_write_sentencepiece", lambda fields, path: None)


def make(path: Path, out: Path) -> dict[str, Any]:
    return materialise.materialise({"source": path}, out, {})


@pytest.mark.usefixtures("unproven")
class TestInTheCore:
    def test_llama_values_come_back_with_rotary_rows_in_order(self, tmp_path: Path) -> None:
        values = write_gguf(tmp_path / "m.gguf")
        notes = make(tmp_path / "m.gguf", tmp_path / "out")
        tensors = load_file(tmp_path / "out/model.safetensors")
        assert len(tensors) == notes["tensors"] == len(values)
        assert {str(tensor.dtype) for tensor in tensors.values()} == {"float32"}
        name = "model.layers.1.mlp.down_proj.weight"
        np.testing.assert_array_equal(tensors[name], values["blk.1.ffn_down.weight"])
        # llama.cpp's converter lays the two halves of a head's rows in turns
        for ours, theirs, heads in (("q", "attn_q", HEADS), ("k", "attn_k", KV_HEADS)):
            back = tensors[f"model.layers.0.self_attn.{ours}_proj.weight"]
            rows = back.reshape(heads, 2, back.shape[0] // heads // 2, WIDTH).swapaxes(1, 2).reshape(back.shape)
            np.testing.assert_array_equal(rows, values[f"blk.0.{theirs}.weight"])
        assert notes["quantisation"] == {"F32": 5, "Q8_0": 15}

    def test_llama_config(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "m.gguf")
        make(tmp_path / "m.gguf", tmp_path / "out")
        config = json.loads((tmp_path / "out/config.json").read_text())
        expected = {
            "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1, "vocab_size": 261, "dtype": "float32",
        }  # fmt: skip
        assert {key: config[key] for key in expected} == expected
        assert "pad_token_id" not in config
        assert (tmp_path / "out/chat_template.jinja").read_text() == "{{ messages }}"

    def test_gemma_norms_and_layers(self, tmp_path: Path) -> None:
        values = write_gguf(tmp_path / "m.gguf", "gemma3")
        make(tmp_path / "m.gguf", tmp_path / "out")
        tensors = load_file(tmp_path / "out/model.safetensors")
        for ours, theirs in (("self_attn.q_norm", "attn_q_norm"), ("post_feedforward_layernorm", "post_ffw_norm")):
            found = tensors[f"model.layers.0.{ours}.weight"]
            np.testing.assert_array_equal(found, values[f"blk.0.{theirs}.weight"] - 1)
        config = json.loads((tmp_path / "out/config.json").read_text())
        assert (config["sliding_window"], config["head_dim"]) == (32, WIDTH // HEADS)
        assert config["layer_types"] == ["sliding_attention"] * LAYERS

    def test_the_same_bytes_each_time_from_a_file_or_its_folder(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "m.gguf")
        make(tmp_path / "m.gguf", tmp_path / "a")
        make(tmp_path, tmp_path / "b")
        names = sorted(path.name for path in (tmp_path / "a").iterdir())
        assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
        for name in names:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_what_it_does_not_know_it_refuses(self, tmp_path: Path) -> None:
        with pytest.raises(materialise.Unsupported, match=r"wants one \.gguf file, has none"):
            make(tmp_path, tmp_path / "out")
        for changes, message in (
            ({"arch": "qwen2"}, "'qwen2'; GGUFs of llama, gemma3 can be turned back"),
            ({"drop": "blk.1.ffn_up.weight"}, r"1 tensors are missing, the first is model\.layers\.1\.mlp\.up_proj"),
            ({"extra": "rope_freqs.weight"}, r"'rope_freqs\.weight' has no place in LlamaForCausalLM"),
        ):
            write_gguf(tmp_path / "m.gguf", **changes)
            with pytest.raises(materialise.Unsupported, match=message):
                make(tmp_path / "m.gguf", tmp_path / "out")


def test_facts_for_the_lock(tmp_path: Path) -> None:
    values = write_gguf(tmp_path / "m.gguf")
    found = gguf_facts.read(tmp_path / "m.gguf")
    assert (found["architecture"], found["vocab_size"], found["hidden"]) == ("LlamaForCausalLM", 261, WIDTH)
    assert found["parameters"] == sum(value.size for value in values.values())
    assert found["largest"] == 261 * WIDTH
    content = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(content[:-100])
    with pytest.raises(SourceError, match="the end is missing"):
        gguf_facts.read(tmp_path / "m.gguf")
    write_gguf(tmp_path / "m.gguf", "qwen2")
    with pytest.raises(SourceError, match="GGUFs of llama, gemma3 can be turned back"):
        gguf_facts.read(tmp_path / "m.gguf")


def test_merges_go_by_score_and_leave_control_and_user_pieces_alone() -> None:
    tokens, scores, kinds = pieces()
    fields = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
    }
    assert rebuilt_tokenizer.merges_of_pieces(fields) == [["▁", "t"], ["h", "e"], ["▁t", "he"]]


def test_an_unknown_way_to_split_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rebuilt_tokenizer.WrongTokenizer, match="gpt2/qwen2 tokenizer; have gpt2/smollm"):
        rebuilt_tokenizer.write({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2"}, tmp_path, 8)


LOAD = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer("the the  x")["input_ids"]
logits = model(torch.tensor([ids])).logits
print(json.dumps({"lost": sorted(map(str, [*loading["missing_keys"], *loading["unexpected_keys"]])), "ids": ids,
    "back": tokenizer.decode(ids), "eos": tokenizer.eos_token, "finite": bool(torch.isfinite(logits).all()),
    "threads": torch.get_num_threads()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "text", "start"), [("llama", ["the", "Ġthe", "Ġ", "Ġ", "x"], []), ("gemma3", [], ["<bos>"])]
)
def test_transformers_reads_what_the_worker_wrote(
    arch: str, text: list[str], start: list[str], toolchain: Callable[[str], Path], tmp_path: Path
) -> None:
    write_gguf(tmp_path / "m.gguf", arch)
    asked = {
        "action": "materialise",
        "inputs": {"source": str(tmp_path / "m.gguf")},
        "out": str(tmp_path / "out"),
        "options": {"threads": 1},
    }
    (tmp_path / "request.json").write_text(json.dumps(asked))
    python, env = toolchain("torch"), {**os.environ, "PYTHONPATH": str(ROOT / "workflow/scripts")}
    argv = [python, "-m", "hallmark.worker", tmp_path / "request.json", tmp_path / "response.json"]
    subprocess.run(argv, env=env, check=True)
    done = subprocess.run([python, "-c", LOAD, tmp_path / "out"], env=env, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["lost"], found["finite"]) == ([], True)
    tokens = byte_level_vocabulary()[0] if arch == "llama" else pieces()[0]
    if arch == "llama":
        assert [tokens[number] for number in found["ids"]] == text
        assert found["back"] == "the the  x"
    else:
        assert [tokens[number] for number in found["ids"]] == [*start, "t", "he", "▁the", "  ", "x"]
        assert found["back"] == "<bos>the the  x"
    assert found["eos"] == tokens[1]
