"""Language models for onnxruntime-genai, by its model builder: weights in 4 or 8 bits. For the toolchain `onnx_genai`.

The builder's exit and its options are not relied on: what came out is read back, must hold the bits asked for, and must
answer like the checkpoint. It makes no graphs for other runtimes, and does not calibrate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hallmark import onnx_companions, onnx_export, onnx_file
from hallmark.onnx_file import Operator, Tensor
from hallmark.progress import report

FILE, DATA, CONFIG = "model.onnx", "model.onnx.data", "genai_config.json"
HEAD = "lm_head.MatMul.weight"  # how the builder names the output head
SHAPE = "hallmark.embedding.shape"
BLOCKS = (16, 32, 64, 128, 256)  # what the operator MatMulNBits takes
STEPS = 3
LEAST_ALIKE = 0.7  # correlation of logits: 4 bits keep .94, a model of which one layer in two is used .46


def build(source: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the model and its genai_config.json into the folder `out`; returns what it did.

    Options: `bits` (4, 8), `algorithm` (`default`, `rtn`, `k_quant`), `mixed` (groups of weights that get 8 bits:
    `last_matmul`, `mixed_layers`), `symmetric`, `block_size`, `accuracy_level` (4: activations in int8, 1: in float32),
    `threads`.
    Raises ValueError when the result does not hold what was asked for.
    """
    import torch
    from onnxruntime_genai.models import builder

    torch.set_num_threads(int(options["threads"]))
    block, why = block_size(onnx_companions.read_json(source / "config.json"), options)
    precision, extra = f"int{options['bits']}", _extra_options(options, block)
    with (
        tempfile.TemporaryDirectory(dir=out, prefix=".build-") as scratch,
        patch.object(builder, "AutoConfig", _Configs),
    ):
        settings = builder.parse_extra_options(None, str(source), str(out), precision, "cpu", scratch, extra)
        builder.create_model(None, str(source), str(out), precision, "cpu", scratch, **settings)
    report(1, STEPS, "steps")
    shared = _share_embedding(out / FILE)
    onnx_companions.copy(source, out)  # over the builder's own copies, which transformers has rewritten
    report(2, STEPS, "steps")
    made = onnx_export.describe(out / FILE)
    wanted = f"int{options['bits']}/{block}"
    if wanted not in made["types"]:
        raise ValueError(f"{out / FILE}: holds no weights of type {wanted}, but {', '.join(made['types'])}")
    alike, own_tokenizer = _try_out(source, out, int(options["threads"]))
    report(3, STEPS, "steps")
    done = {"block_size": block, "why": why, "embedding_shares_head": shared, "own_tokenizer_agrees": own_tokenizer}
    return {**done, "correlation_with_source": alike, **made}


def _extra_options(options: Mapping[str, Any], block: int) -> list[str]:
    """The builder's own options for these of ours."""
    extra = [
        f"algo_config={options['algorithm']}",
        f"block_size={block}",
        f"accuracy_level={options['accuracy_level']}",
        f"is_symmetric={str(options['symmetric']).lower()}",
        "hf_token=false",
    ]
    if options.get("mixed"):
        extra.append("matmul_mixed_precision=" + ",".join(f"{group}:int8" for group in options["mixed"]))
    return extra


class _Configs:
    """What the builder gets in place of transformers' AutoConfig.

    Its Gemma 3 reads one set of rotary settings and `rope_local_base_freq`, which is how transformers 4 has them;
    version 5 has a set for each kind of layer, and the builder ends with a KeyError (onnxruntime-genai 0.18).
    """

    @staticmethod
    def from_pretrained(*arguments: Any, **settings: Any) -> Any:
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(*arguments, **settings)
        if config.architectures == ["Gemma3ForCausalLM"]:
            read = onnx_companions.readable_by_transformers_4({"rope_parameters": config.rope_parameters})
            config.rope_theta, config.rope_local_base_freq = read["rope_theta"], read["rope_local_base_freq"]
            config.rope_parameters = read.get("rope_scaling", {"rope_type": "default"})
        return config


def block_size(config: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[int, str]:
    """The largest block up to the asked one that suits every weight's columns, and why it is not the asked one.

    The builder packs two 4-bit zero points to a byte, so where it has them it also needs an even number of blocks to a
    row. When nothing suits, the asked size stays, and ONNX Runtime pads.
    """
    has_zero_points = options["algorithm"] == "k_quant" or not options["symmetric"]
    asked, even = int(options["block_size"]), 2 if has_zero_points and options["bits"] == 4 else 1
    columns = _columns(config)
    for block in sorted((block for block in BLOCKS if block <= asked), reverse=True):
        if all(count % (block * even) == 0 for count in columns):
            return block, "" if block == asked else f"{columns} columns do not divide by {asked * even}"
    return asked, f"{columns} columns divide by no block; rows are padded"


def _columns(config: Mapping[str, Any]) -> list[int]:
    """The different numbers of columns that the model's weights have, as its config.json implies."""
    text = config.get("text_config", config)
    head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    return sorted({text["hidden_size"], text["intermediate_size"], head * text["num_attention_heads"]})


def _share_embedding(path: Path) -> bool:
    """Let the token table be the output head's 8-bit weights, where the builder left a float32 copy of tied weights.

    The builder shares 4-bit builds' tables only; with a large vocabulary the copy would outweigh the rest. Returns
    whether the graph was changed.
    """
    import onnx

    file = onnx_file.read(path)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    lookup = next(
        (found for found in file.operators if found.type == "Gather" and found.inputs[1] == "input_ids"), None
    )
    table = tensors.get(lookup.inputs[0]) if lookup else None
    head = next((found for found in file.operators if found.type == "MatMulNBits" and HEAD in found.inputs[1]), None)
    if lookup is None or table is None or head is None or not _is_same(table, head, tensors):
        return False
    model = onnx.load(path)
    nodes = list(model.graph.node)
    position = next(place for place, node in enumerate(nodes) if node.output[0] == lookup.outputs[0])
    nodes[position : position + 1] = _head_lookup(lookup, head, table)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    kept = [tensor for tensor in model.graph.initializer if tensor.name != table.name]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, onnx.helper.make_tensor(SHAPE, onnx.TensorProto.INT64, [2], table.dims)])
    (path.parent / DATA).unlink()
    onnx.save(model, path, save_as_external_data=True, location=DATA, size_threshold=1024)
    return True


def _is_same(table: Tensor, head: Operator, tensors: Mapping[str, Tensor]) -> bool:
    """Whether rows of the head, unpacked, are the table's rows to within half a step of the 8-bit scale."""
    import numpy as np

    rows, columns = table.dims
    block, told = int(head.attributes["block_size"]), head.attributes
    if (told["N"], told["K"], told["bits"]) != (rows, columns, 8) or columns % block or table.type != "float32":
        return False

    def row(tensor: Tensor, kind: str, number: int) -> Any:
        width = tensor.length // rows
        return np.frombuffer(_bytes(tensor, number * width, width), kind)

    for number in {0, rows // 2, rows - 1}:
        scale = np.abs(row(tensors[head.inputs[2]], "<f4", number))[:, None]
        sign = np.sign(row(tensors[head.inputs[2]], "<f4", number))[:, None]
        zero = row(tensors[head.inputs[3]], "u1", number)[:, None] if len(head.inputs) > 3 else np.uint8(128)
        steps = row(tensors[head.inputs[1]], "u1", number).reshape(-1, block).astype(np.float32) - zero
        expected = row(table, "<f4", number).reshape(-1, block)
        if np.any(np.abs(steps * sign * scale - expected) > scale):
            return False
    return True


def _bytes(tensor: Tensor, start: int, count: int) -> bytes:
    with tensor.path.open("rb") as stream:
        stream.seek(tensor.offset + start)
        return stream.read(count)


def _head_lookup(lookup: Operator, head: Operator, table: Tensor) -> list[Any]:
    """The nodes that look tokens up in the head's weights."""
    import onnx

    flat = "hallmark.embedding"
    reshape = onnx.helper.make_node("Reshape", [head.inputs[1], SHAPE], [flat], name="/hallmark/embedding/Reshape")
    gather = onnx.helper.make_node(
        "GatherBlockQuantized",
        [flat, lookup.inputs[1], *head.inputs[2:4]],
        [lookup.outputs[0]],
        name="/hallmark/embedding/GatherBlockQuantized",
        domain="com.microsoft",
        bits=8,
        block_size=head.attributes["block_size"],
        gather_axis=0,
        quantize_axis=1,
    )
    return [reshape, gather]


def _try_out(source: Path, out: Path, threads: int) -> tuple[float, bool]:
    """How the folder's logits correlate with the checkpoint's, and whether the runtime's own tokenizer agrees.

    Raises ValueError below LEAST_ALIKE. The builder recognises modules by their shapes: where `intermediate_size`
    equals `vocab_size` it takes a projection of the first layer for the output head, without a word.
    """
    import numpy as np

    from hallmark.run import onnx_generate

    ids, expected = onnx_export.source_answer(source, "causal-lm", "fp32")
    runner = onnx_generate.GenaiDecoder(out, threads)
    answer = runner.logits(ids)
    alike = float(np.corrcoef(answer.ravel(), expected.ravel())[0, 1])
    if not alike >= LEAST_ALIKE:  # also when it is not a number
        raise ValueError(
            f"{out / FILE}: its logits correlate with the checkpoint's by {alike:.2f}, {LEAST_ALIKE} is the least; the "
            "builder has misread this model, use another variant or format"
        )
    return alike, runner.own is not None
