"""Writes a tiny Llama checkpoint (hidden 256, 2 layers, vocabulary 512). Runs in the `torch` toolchain.

Usage: checkpoints.py FOLDER [--seed N]

The tokenizer is trained on the documentation strings that come with Python, so nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

VOCABULARY = 512


def train_tokenizer(folder: Path) -> bytes:
    """A SentencePiece BPE model with byte fallback; unk 0, bos 1, eos 2."""
    import pydoc_data.topics

    import sentencepiece

    corpus = folder / "corpus.txt"
    lines = [line for topic in pydoc_data.topics.topics.values() for line in topic.splitlines() if line.strip()]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=VOCABULARY,
        model_type="bpe",
        unk_id=0,
        bos_id=1,
        eos_id=2,
        byte_fallback=True,
        num_threads=1,
        minloglevel=2,
        max_sentence_length=20000,
    )
    return (folder / "tokenizer.model").read_bytes()


def write(out: Path, seed: int) -> None:
    """Write the checkpoint: config.json, model.safetensors (bfloat16), tokenizer.model, README.md, LICENSE."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=768,  # not the vocabulary: onnxruntime-genai tells the output head by its number of rows
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=VOCABULARY,
        tie_word_embeddings=False,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    state = LlamaForCausalLM(config).state_dict()
    tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in state.items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    described = config.to_dict() | {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    described.pop("dtype", None)
    (out / "config.json").write_text(json.dumps(described, indent=1), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        (out / "tokenizer.model").write_bytes(train_tokenizer(Path(folder)))
    tokenizer = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=1), encoding="utf-8")
    (out / "README.md").write_text(
        "---\nlicense: mit\n---\n# Tiny Llama\n\nRandom weights, for tests.\n", encoding="utf-8"
    )
    (out / "LICENSE").write_text("MIT License\n\nFor tests.\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write(arguments.folder, arguments.seed)
