"""ONNX graphs from checkpoints by optimum's exporter, and their dynamic int8 form. For the toolchain `onnx`.

Exit codes and warnings are not relied on: a checkpoint that lacks tensors, or weights that are not finite, are refused,
and the graph must answer like the model it was traced from. It knows nothing of tokenizers and of onnxruntime-genai.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import onnx_census, onnx_companions, onnx_file
from hallmark.progress import report

if TYPE_CHECKING:
    import numpy as np

FILE = "model.onnx"
EXPORTS = {"causal-lm": "text-generation-with-past", "sentence-similarity": "feature-extraction"}
UNUSED_HEADS = ("pooler.",)  # parts that an encoder's exported outputs do not use, so they may be missing
PROBE_TOKENS = 16
TOLERANCE = {"fp32": 1e-3, "fp16": 5e-2}  # largest difference to the traced model, over its largest output
LARGEST_INLINE = 1_900_000_000  # a protobuf message ends at 2 GiB; beyond, weights go to a file of their own
STEPS = 4


def export(source: Path, out: Path, task: str, precision: str, threads: int) -> dict[str, Any]:
    """Write `model.onnx` for the checkpoint into the folder `out`, in `fp32` or `fp16`; returns what it did.

    Raises ValueError for a checkpoint that lacks tensors or is not finite in this precision, and for a graph that does
    not answer like the model.
    """
    import torch

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(dir=out, prefix=".export-") as scratch:
        staged = onnx_companions.stage(source, Path(scratch))
        model, unused = _load(staged, source, task, precision)
        report(1, STEPS, "steps")
        ids, expected = _answer(model, task)
        made = Path(scratch) / "made"
        _trace(model, made, EXPORTS[task])
        report(2, STEPS, "steps")
        del model
        gc.collect()
        for path in sorted(made.glob(f"{FILE}*")):
            path.rename(out / path.name)
    _tidy(out / FILE)
    report(3, STEPS, "steps")
    difference = _difference(out / FILE, ids, expected, threads)
    if not difference <= TOLERANCE[precision]:  # also when it is not a number
        raise ValueError(
            f"{out / FILE}: differs from the model by {difference:.2g} of its largest output, the limit is "
            f"{TOLERANCE[precision]:g}"
        )
    report(4, STEPS, "steps")
    return {"difference_to_traced_model": difference, "tensors_not_used": unused, **describe(out / FILE)}


def describe(path: Path) -> dict[str, Any]:
    """Types and operations of a graph as they came out. Raises ValueError when weights are not finite."""
    file = onnx_file.read(path)
    broken = onnx_census.nonfinite(file.tensors)
    if broken:
        name, count = next(iter(broken.items()))
        raise ValueError(f"{path}: {len(broken)} tensors hold NaN or infinite values, {name} holds {count}")
    weights = onnx_census.weights(file)
    return {
        "types": onnx_census.histogram(weights),
        "operations": onnx_census.operations(file),
        "padded": onnx_census.padded(file),
    }


def _load(staged: Path, source: Path, task: str, precision: str) -> tuple[Any, list[str]]:
    """The model, and the tensors of the checkpoint that it does not use."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM

    loader = AutoModelForCausalLM if task == "causal-lm" else AutoModel
    kind = torch.float16 if precision == "fp16" else torch.float32
    model, loaded = loader.from_pretrained(staged, dtype=kind, local_files_only=True, output_loading_info=True)
    allowed = UNUSED_HEADS if task == "sentence-similarity" else ()
    missing = sorted(name for name in loaded["missing_keys"] if not name.startswith(allowed or ("\0",)))
    if missing:
        raise ValueError(
            f"{source}: lacks {len(missing)} tensors that {type(model).__name__} needs, such as {missing[0]}"
        )
    for name, weight in model.named_parameters():
        lost = int((~torch.isfinite(weight)).sum())
        if lost:
            raise ValueError(f"{source}: {name} has {lost} values that are NaN or infinite in {precision}")
    model.config._name_or_path = ""  # where the checkpoint lay is no part of it
    return model.eval(), sorted(loaded["unexpected_keys"])


def source_answer(source: Path, task: str, precision: str) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Some token ids, and what the checkpoint says to them, see `_answer`. Raises ValueError as `export` does."""
    model, _ = _load(source, source, task, precision)
    return _answer(model, task)


def _answer(model: Any, task: str) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Some token ids, and what the model says to them: logits, or token vectors; float32 (tokens, size)."""
    import torch

    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    ids = [(97 * position + 5) % vocabulary for position in range(PROBE_TOKENS)]
    with torch.inference_mode():
        made = model(input_ids=torch.tensor([ids]))
    return ids, (made.logits if task == "causal-lm" else made.last_hidden_state)[0].float().numpy()


def _trace(model: Any, made: Path, task: str) -> None:
    from optimum.exporters.onnx.convert import onnx_export_from_model

    onnx_export_from_model(model, made, task=task, do_validation=False, preprocessors=[])
    found = sorted(path.name for path in made.glob("*.onnx"))
    if found != [FILE]:
        raise ValueError(f"the exporter left {', '.join(found) or 'no graph'} instead of one {FILE}")


def _tidy(path: Path) -> None:
    """Take comments and trace metadata out: they can hold paths of this machine, and nothing reads them."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for message in (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info):
        message.ClearField("doc_string")
        message.ClearField("metadata_props")
    path.write_bytes(model.SerializeToString(deterministic=True))


def _difference(path: Path, ids: list[int], expected: np.ndarray[Any, Any], threads: int) -> float:
    """Largest difference of the graph's answer to the ids from `expected`, over the largest expected value."""
    import numpy as np
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    session = ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    arrays = {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, len(ids)), dtype=np.int64),
        "position_ids": np.arange(len(ids))[None],
    }
    feeds = {}
    for value in session.get_inputs():
        shape = [
            1 if position == 0 else size if isinstance(size, int) else 0 for position, size in enumerate(value.shape)
        ]
        kind = {"tensor(float)": np.float32, "tensor(float16)": np.float16}.get(value.type, np.int64)
        empty = np.zeros(shape if value.name.startswith("past") else (1, len(ids)), dtype=kind)
        feeds[value.name] = arrays.get(value.name, empty)
    answer = session.run(None, feeds)[0][0].astype(np.float32)
    return float(np.abs(answer - expected).max() / np.abs(expected).max())


def quantise_dynamic(float_graph: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the graph with int8 weights, activations quantised as they come; returns what it did.

    `per_channel`: one scale for each output column instead of one for each weight.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # As a model, not as a path: given a path, the quantiser writes its own files beside the input.
    model = onnx.load(float_graph)
    size = sum(path.stat().st_size for path in float_graph.parent.glob(f"{FILE}*"))
    report(1, 2, "steps")
    quantize_dynamic(
        model,
        out / FILE,
        per_channel=bool(options["per_channel"]),
        weight_type=QuantType.QInt8,
        use_external_data_format=size > LARGEST_INLINE,
    )
    _tidy(out / FILE)
    made = describe(out / FILE)
    if "int8" not in made["types"]:
        raise ValueError(f"{out / FILE}: no weight was quantised, types are {', '.join(made['types'])}")
    report(2, 2, "steps")
    return made
