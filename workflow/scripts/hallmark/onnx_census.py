"""What an ONNX artifact's weights are: types, counts, quantisation as realised, non-finite values. Runs no inference.

For the core and for the toolchains: it needs numpy and the standard library. Weights are read in pieces, so memory is
bounded whatever the model's size.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hallmark.onnx_file import TYPES, OnnxFile, Operator, Tensor

if TYPE_CHECKING:
    import numpy as np

# Inputs of an operator that describe other inputs (scales, zero points) or positions: no weights of the model
SUPPORTING = {
    "MatMulNBits": (2, 3, 4), "GatherBlockQuantized": (2, 3), "QMoE": (3, 6, 9), "DequantizeLinear": (1, 2),
    "QuantizeLinear": (1, 2), "MatMulInteger": (2, 3), "ConvInteger": (2, 3), "DynamicQuantizeMatMul": (2, 3),
    "MatMulIntegerToFloat": (2, 3, 4, 5), "GroupQueryAttention": (5, 6, 7, 8), "RotaryEmbedding": (1, 2, 3),
}  # fmt: skip
SUPPORTING_ENDS = ("_scale", "_zero_point")  # as ONNX Runtime's quantiser names what it adds
PACKED = ("MatMulNBits", "GatherBlockQuantized")  # several weights to a byte, as their attribute `bits` says
FLOATS = ("float32", "float16", "bfloat16", "float64")
PIECE = 1 << 24  # elements looked at together
WIDTHS = dict(TYPES.values())


@dataclass(frozen=True)
class Weight:
    """A tensor of the model proper, with its type as quantised: `int4/32` is 4 bits in blocks of 32."""

    tensor: Tensor
    type: str
    elements: int


def weights(file: OnnxFile) -> list[Weight]:
    """The model's weights. Scales, zero points, position tables and integer constants are not among them."""
    supporting = {name for operator in file.operators for name in _supporting(operator)}
    packed = _packed(file.operators)
    found = []
    for tensor in file.tensors:
        if tensor.name in packed:
            kind, bits = packed[tensor.name]
            found.append(Weight(tensor, kind, tensor.elements * WIDTHS[tensor.type] // bits))
        elif tensor.name in supporting or tensor.name.endswith(SUPPORTING_ENDS):
            continue
        elif tensor.type in FLOATS or (tensor.type in ("int8", "uint8", "int4", "uint4") and len(tensor.dims) > 1):
            found.append(Weight(tensor, tensor.type, tensor.elements))
    return found


def _supporting(operator: Operator) -> Iterator[str]:
    for position in SUPPORTING.get(operator.type, ()):
        yield from operator.inputs[position : position + 1]


def _packed(operators: Iterable[Operator]) -> dict[str, tuple[str, int]]:
    """Type and bits of each tensor that holds several weights to a byte. A reshaped one is named by its origin."""
    operators = list(operators)
    origin = {operator.outputs[0]: operator.inputs[0] for operator in operators if operator.type == "Reshape"}
    found = {}
    for operator in operators:
        if operator.type in PACKED:
            bits = int(operator.attributes.get("bits", 4))
            name = operator.inputs[1 if operator.type == "MatMulNBits" else 0]
            found[origin.get(name, name)] = (f"int{bits}/{operator.attributes.get('block_size')}", bits)
    return found


def histogram(found: Iterable[Weight]) -> dict[str, dict[str, int]]:
    """Tensors, weights and bytes by type, the largest first."""
    table: dict[str, dict[str, int]] = {}
    for weight in found:
        row = table.setdefault(weight.type, {"tensors": 0, "weights": 0, "bytes": 0})
        row["tensors"] += 1
        row["weights"] += weight.elements
        row["bytes"] += weight.tensor.length
    return dict(sorted(table.items(), key=lambda item: -item[1]["bytes"]))


def operations(file: OnnxFile) -> dict[str, int]:
    """How often each operation occurs; of those on quantised weights also bits, block and least accuracy."""
    return dict(sorted(Counter(_described(operator) for operator in file.operators).items()))


def _described(operator: Operator) -> str:
    if operator.type not in PACKED:
        return operator.type
    told: Mapping[str, Any] = operator.attributes
    level = f", accuracy level {told['accuracy_level']}" if "accuracy_level" in told else ""
    return f"{operator.type}, {told.get('bits', 4)} bits, blocks of {told.get('block_size')}{level}"


def padded(file: OnnxFile) -> list[str]:
    """Weights whose columns do not divide into blocks: `576 columns in blocks of 128`, and how many such."""
    uneven = Counter(
        f"{told['K']} columns in blocks of {told['block_size']}"
        for operator in file.operators
        if operator.type == "MatMulNBits"
        for told in [operator.attributes]
        if int(told["K"]) % int(told["block_size"])
    )
    return [f"{what}: {count} weights padded" for what, count in sorted(uneven.items())]


def nonfinite(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Names of the floating-point tensors that hold NaN or infinite values, with their counts."""
    found = {}
    for tensor in tensors:
        if tensor.type in FLOATS and tensor.length:
            count = sum(_nonfinite(piece, tensor.type) for piece in _pieces(tensor))
            if count:
                found[tensor.name] = count
    return found


def _pieces(tensor: Tensor) -> Iterator[np.ndarray[Any, Any]]:
    """The tensor's elements, as unsigned integers where numpy has no such float, a bounded number at a time."""
    import numpy as np

    kinds = {"float32": "<f4", "float16": "<f2", "float64": "<f8", "bfloat16": "<u2"}
    if tensor.encoding == "int32":  # a list of varints, which hold the bits of float16 or bfloat16
        values = np.fromiter(varints(tensor), dtype=np.uint16)
        yield values.view("<f2") if tensor.type == "float16" else values
        return
    kind = np.dtype(kinds[tensor.type])
    for start in range(0, tensor.length // kind.itemsize, PIECE):
        count = min(PIECE, tensor.length // kind.itemsize - start)
        yield np.fromfile(tensor.path, kind, count, offset=tensor.offset + start * kind.itemsize)


def varints(tensor: Tensor) -> Iterator[int]:
    """The lowest 16 bits of each number of a list that protobuf packs."""
    with tensor.path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        value = shift = 0
        for byte in data[tensor.offset : tensor.offset + tensor.length]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                yield value & 0xFFFF
                value = shift = 0


def _nonfinite(piece: np.ndarray[Any, Any], kind: str) -> int:
    import numpy as np

    if kind == "bfloat16":
        return int(np.count_nonzero((piece & 0x7F80) == 0x7F80))
    return int(piece.size - np.count_nonzero(np.isfinite(piece)))
