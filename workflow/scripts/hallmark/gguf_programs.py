"""llama.cpp's converter and programs, called so that nothing but the model decides the bytes they write.

Their exit codes cannot be trusted: a checkpoint without weights converts with exit code 0. Every file is therefore
opened and checked here. Knows nothing of variants; reading GGUF files is `hallmark.gguf_file`, running them
`hallmark.gguf_runtime`.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hallmark import gguf_file
from hallmark.gguf_file import DamagedFile, GgufFile, Tensor
from hallmark.processes import run_tool, to_stderr
from hallmark.progress import report
from hallmark.source_settings import is_tied

# The names that the programs see and write into their output.
MODEL, MATRIX, CALIBRATION = "model", "imatrix.gguf", "calibration.txt"
SHOWN = 20  # names in a message or a note
STEP = re.compile(r"\[ *(\d+)/ *(\d+)\]")
# Before each tensor's name where a checkpoint was saved with a head: bert.encoder.layer.0 ...
ENCODER_PREFIX = re.compile(r"^(distilbert|roberta|bert)\.")
# Buffers that follow from the config, and BERT's pooler, which no embedding uses.
UNUSED = re.compile(r"(\.inv_freq|position_ids|masked_bias|pooler\.dense\.(weight|bias))$")
WRITTEN = re.compile(r"Writing: +(\d+)%")


def llama_cpp() -> Path:
    """llama.cpp's folder in the toolchain that this process runs in."""
    return Path(os.environ["HALLMARK_TOOLCHAIN"]) / "llama.cpp"


def convert_checkpoint(source: Path, out: Path, outtype: str, threads: int) -> GgufFile:
    """Write a checkpoint as the GGUF file `out` in `f32`, `f16` or `bf16`, and check that it is complete."""

    def follow(line: str) -> None:
        to_stderr(line)
        if done := WRITTEN.search(line):
            report(int(done[1]), 100, "percent written")

    with _work_folder(out) as work:
        _link_checkpoint(source, work / MODEL)
        argv: list[str | Path] = [sys.executable, llama_cpp() / "convert_hf_to_gguf.py", MODEL, "--outfile", out]
        argv += ["--outtype", outtype, "--model-name", MODEL]
        if _has_dense_modules(source):
            argv.append("--sentence-transformers-dense-modules")
        run_tool(argv, cwd=work, env=_environment(threads), on_line=follow)
    made = gguf_file.read(out)
    check_complete(made, source)
    return made


def quantise(base: Path, out: Path, kind: str, threads: int, matrix: Path | None = None) -> GgufFile:
    """Write the float GGUF file `base` as `out` in a type of llama-quantize (`Q4_K_M`), weighed by a matrix if any."""

    def follow(line: str) -> None:
        to_stderr(line)
        if step := STEP.match(line):
            report(int(step[1]), int(step[2]), "tensors")

    with _work_folder(out) as work:
        weighed: list[str] = []
        if matrix is not None:  # its path is written into the output
            (work / MATRIX).symlink_to(matrix.resolve())
            weighed = ["--imatrix", MATRIX]
        argv: list[str | Path] = [llama_cpp() / "bin/llama-quantize", *weighed, base, out, kind, str(threads)]
        run_tool(argv, cwd=work, env=_environment(threads), on_line=follow)
    made, before = gguf_file.read(out), gguf_file.read(base)
    lost = sorted(set(before.by_name) - set(made.by_name))
    if lost:
        raise DamagedFile(f"{out}: lacks {len(lost)} tensors of {base}: {', '.join(lost[:SHOWN])}")
    return made


def collect_importance(base: Path, texts: Iterable[str], out: Path, chunks: int, tokens: int, threads: int) -> int:
    """Write the importance matrix of the float GGUF file `base` over `chunks` pieces of text of `tokens` tokens.

    Returns the number of chunks there was text for. Raises ValueError when that is less than a quarter of what was
    asked, and DamagedFile for a matrix that is not there or not finite.
    """
    model = gguf_file.read(base)
    tokens = min(tokens, int(model.of_architecture("context_length") or tokens))
    argv: list[str | Path] = [llama_cpp() / "bin/llama-imatrix", "-m", base, "-f", CALIBRATION, "-o", MATRIX]
    # One chunk at a time: an encoder sees its whole input at once, and it bounds the memory of the logits.
    argv += ["-c", str(tokens), "-b", str(tokens), "-ub", str(tokens), "--chunks", str(chunks)]
    argv += ["-t", str(threads), "--no-ppl"]
    if model.metadata.get("tokenizer.ggml.add_eos_token"):  # which llama-imatrix, cutting text as it does, refuses
        argv += ["--override-kv", "tokenizer.ggml.add_eos_token=bool:false"]
    with _work_folder(out) as work:
        (work / CALIBRATION).write_text("\n\n".join(texts), encoding="utf-8")
        run_tool(argv, cwd=work, env=_environment(threads))
        if not (work / MATRIX).exists():
            raise DamagedFile(f"{out}: llama-imatrix ended well but wrote no matrix")
        (work / MATRIX).rename(out)
    matrix = gguf_file.read(out)
    seen = int(matrix.metadata.get("imatrix.chunk_count", 0))
    if 4 * seen < chunks:
        raise ValueError(f"the calibration data gives {seen} chunks of {tokens} tokens, not {chunks}: give more text")
    if not matrix.tensors or gguf_file.count_nonfinite(matrix)[0]:
        raise DamagedFile(f"{out}: no tensors, or NaN or infinite numbers in them: is the checkpoint sound?")
    return seen


def check_complete(made: GgufFile, source: Path) -> None:
    """Raise DamagedFile unless the file holds the checkpoint's tensors and a token for each row of the embedding.

    Tensors are found by llama.cpp's own table of names; what it does not name (buffers, a mixture's experts, which are
    joined) cannot be looked for.
    """
    if not made.tensors:
        raise DamagedFile(f"{made.path}: no tensors: does {source} hold weights (*.safetensors)?")
    vocabulary, embedding = made.metadata.get("tokenizer.ggml.tokens"), made.by_name.get("token_embd.weight")
    if vocabulary and embedding and len(vocabulary) != embedding.shape[-1]:
        raise DamagedFile(
            f"{made.path}: {len(vocabulary)} tokens but {embedding.shape[-1]} rows in the embedding, which llama.cpp "
            f"refuses: the tokenizer files in {source} do not fit its weights"
        )
    named = named_tensors(made, source)
    lost = sorted(name for name, (there, _) in named.items() if there not in made.by_name)
    # A few architectures are stored with tensors split or joined; then nothing is lost, and the elements say so.
    if lost and made.elements < sum(elements for _, elements in named.values()):
        raise DamagedFile(f"{made.path}: lacks {len(lost)} tensors of {source}: {', '.join(lost[:SHOWN])}")


def named_tensors(made: GgufFile, source: Path) -> dict[str, tuple[str, int]]:
    """For each tensor of the checkpoint that llama.cpp's table names: its name in the file, and its elements."""
    import gguf

    architectures = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    if made.architecture not in architectures:
        return {}
    table = gguf.get_tensor_name_map(architectures[made.architecture], int(made.of_architecture("block_count") or 0))
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    found = {}
    for name, elements in checkpoint_tensors(source):
        there = table.get_name(ENCODER_PREFIX.sub("", name), try_suffixes=(".weight", ".bias"))
        tied = there == "output.weight" and is_tied(config)
        if there and not tied and not UNUSED.search(name):
            found[name] = there, elements
    return found


def checkpoint_tensors(source: Path) -> Iterator[tuple[str, int]]:
    """Names and elements of the tensors in a folder's safetensors files."""
    for path in sorted(source.glob("*.safetensors")):
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        yield from ((name, prod(entry["shape"])) for name, entry in header.items() if name != "__metadata__")


def fallbacks(tensors: Sequence[Tensor], asked: str) -> dict[str, Any]:
    """Which weights are stored in another type than asked, because their rows do not divide into its blocks.

    `{"block": columns of a block, "tensors": how many, "columns": {row length: {type they got: tensors}}}`
    """
    block = 256 if "_K" in asked or (asked.startswith("IQ") and asked != "IQ4_NL") else 32 if asked[0] in "QI" else 1
    found: dict[str, Counter[str]] = {}
    for tensor in tensors:
        if len(tensor.shape) > 1 and tensor.shape[0] % block and tensor.type != "F32":
            found.setdefault(str(tensor.shape[0]), Counter())[tensor.type] += 1
    count = sum(sum(types.values()) for types in found.values())
    return {"block": block, "tensors": count, "columns": {columns: dict(types) for columns, types in found.items()}}


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
    """A folder for what the programs read; beside the output, so that it goes when an unfinished output goes."""
    with TemporaryDirectory(prefix=".work-", dir=out.parent) as folder:
        yield Path(folder)


def _link_checkpoint(source: Path, view: Path) -> None:
    """Show the converter a checkpoint under a fixed name, without the model card and without code.

    The folder's name and the card's front matter would end in the file's metadata; a tokenizer's Python code would be
    run.
    """
    view.mkdir()
    for path in source.iterdir():
        if path.suffix not in (".md", ".py") and not path.name.startswith("."):
            (view / path.name).symlink_to(path.resolve())


def _has_dense_modules(source: Path) -> bool:
    """Whether sentence-transformers' modules hold dense layers after the pooling."""
    path = source / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return any(module["type"].endswith(".Dense") for module in modules)


def _environment(threads: int) -> dict[str, str]:
    """This process's environment, without its Python path: the converter brings modules of its own."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("LLAMA_")}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return env | offline | {"OMP_NUM_THREADS": str(threads), "GGML_NO_BACKTRACE": "1", "PYTHONUTF8": "1"}
