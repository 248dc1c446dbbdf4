"""The weights of an ONNX graph as numbers: de-quantised, some rows at a time, in the source's orientation. No names.

What a stored tensor is, which scales belong to it and whether it is transposed follows from the operators that read it.
Source of the packing: MatMulNBits and GatherBlockQuantized in ONNX Runtime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hallmark import onnx_census
from hallmark.census import Stored
from hallmark.onnx_file import OnnxFile, Operator, Tensor
from hallmark.pairing import Found
from hallmark.weight_error import ROW, TENSOR, Grid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FLOATS = {"float32": ("<f4", "f32"), "float16": ("<f2", "f16"), "float64": ("<f8", "f64"), "bfloat16": ("<u2", "bf16")}
PLAIN = ("raw", "float32", "float64")  # encodings whose bytes are the elements, one after the other
BYTES = {"int8": "<i1", "uint8": "<u1"}
QUANTISED, SCALE, ZERO = "_quantized", "_scale", "_zero_point"  # how ONNX Runtime's quantiser names what it makes
TRANSPOSED = ("MatMul", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
# Operators whose constant matrices are learned, and no tables of positions.
LEARNED = (*TRANSPOSED, "Gemm", "MatMulNBits", "Gather", "GatherBlockQuantized", "DequantizeLinear")
FEWEST = 2  # elements of a weight; a lone number is a factor


def weights(file: OnnxFile) -> tuple[list[Found], list[Tensor]]:
    """The graph's weights, and those matrices among them that cannot be read. One that several operators read comes
    once."""
    tensors = {tensor.name: tensor for tensor in file.tensors}
    renamed = {operator.outputs[0]: operator.inputs[0] for operator in file.operators if operator.type == "Reshape"}
    readers: dict[str, list[tuple[int, Operator]]] = {}
    for operator in file.operators:
        for position, name in enumerate(operator.inputs):
            readers.setdefault(renamed.get(name, name), []).append((position, operator))
    found, unread = [], []
    for tensor in (weight.tensor for weight in onnx_census.weights(file)):
        using = readers.get(tensor.name, [])
        stored = _stored(tensor, using, tensors)
        if stored is not None:
            names = (operator.name for _, operator in using if operator.name)
            found.append(Found(stored, (tensor.name, *names), any(operator.type in LEARNED for _, operator in using)))
        elif len(tensor.dims) > 1 and tensor.elements >= FEWEST:
            unread.append(tensor)
    return found, unread


def _stored(tensor: Tensor, readers: list[tuple[int, Operator]], tensors: Mapping[str, Tensor]) -> Stored | None:
    packed = next((operator for place, operator in readers if _packs(operator, place)), None)
    if packed is not None:
        return _packed(tensor, packed, tensors)
    if tensor.elements < FEWEST or tensor.encoding not in PLAIN or not 0 < len(tensor.dims) <= 2:
        return None
    turned = len(tensor.dims) == 2 and any(_is_turned(operator, place) for place, operator in readers)
    if tensor.type in FLOATS and not tensor.name.endswith((SCALE, ZERO)):
        kind, grid = FLOATS[tensor.type]
        return _plain(tensor, kind, turned, Grid(grid), None)
    if tensor.type in BYTES and tensor.name.endswith(QUANTISED):
        stem = tensor.name.removesuffix(QUANTISED)
        if stem + SCALE in tensors:
            scale = array(tensors[stem + SCALE]).ravel()
            zero = array(tensors[stem + ZERO]).ravel() if stem + ZERO in tensors else None
            by_row = turned and len(scale) == tensor.dims[1]
            block = ROW if by_row else TENSOR
            grid_of = Grid("integer", 8, block, bool(zero is None or not zero.any()))
            return _plain(tensor, BYTES[tensor.type], turned, grid_of, (scale, zero))
    return None


def epsilons(file: OnnxFile) -> Iterator[float]:
    """What norms add to their variance: attributes of operations, and numbers that a module named `...norm` adds."""
    lone = {t.name: t for t in (*file.tensors, *file.constants) if t.elements == 1 and t.encoding in PLAIN}
    for operator in file.operators:
        if operator.type.endswith(("LayerNormalization", "RMSNormalization")):
            yield float(operator.attributes.get("epsilon", 1e-5))
        elif operator.type == "Add" and "norm" in operator.name.lower():
            for name in operator.inputs:
                if name in lone and lone[name].type in FLOATS:
                    yield float(array(lone[name]).ravel()[0])


def _packs(operator: Operator, place: int) -> bool:
    return (operator.type, place) in (("MatMulNBits", 1), ("GatherBlockQuantized", 0))


def _is_turned(operator: Operator, place: int) -> bool:
    """Whether an operator reads a matrix as inputs x outputs, the source having outputs x inputs."""
    if operator.type == "Gemm":
        return place == 1 and not operator.attributes.get("transB", 0)
    return operator.type in TRANSPOSED and place == 1


def array(tensor: Tensor) -> Any:
    """A tensor's numbers, floats or of 8 bits, in memory; bfloat16 as unsigned integers."""
    import numpy as np

    kind = BYTES.get(tensor.type) or {name: kind for name, (kind, _) in FLOATS.items()}.get(tensor.type)
    if kind is None:
        raise ValueError(f"{tensor.path}: {tensor.name} is of type {tensor.type}, which cannot be read as numbers")
    if tensor.encoding == "int32":  # a list of varints, of which 16 bits are enough for integers of 8
        values = np.fromiter(onnx_census.varints(tensor), np.uint16)
        return values.view(np.int16).astype(np.dtype(kind)).reshape(tensor.dims)
    return np.fromfile(tensor.path, kind, tensor.elements, offset=tensor.offset).reshape(tensor.dims)


def _plain(tensor: Tensor, kind: str, turned: bool, grid: Grid, scales: tuple[Any, Any] | None) -> Stored:
    """One number to an element, perhaps transposed, perhaps with a scale for all or one for each row."""
    import numpy as np

    dims = tensor.dims if len(tensor.dims) == 2 else (1, tensor.dims[0])
    shape = (dims[1], dims[0]) if turned else (dims[0], dims[1])

    def read(which: slice) -> Floats:
        stored = np.memmap(tensor.path, np.dtype(kind), "r", tensor.offset, dims)  # for so long that pages go again
        picked = np.asarray(stored[:, which].T if turned else stored[which])
        if grid.kind == "bf16":
            return (picked.astype(np.uint32) << 16).view(np.float32)
        if scales is None:
            return picked.astype(np.float32)
        scale, zero = scales
        values = picked.astype(np.float32)
        if zero is not None:
            values -= (zero if len(zero) == 1 else zero[which][:, None]).astype(np.float32)
        return np.asarray(values * (scale if len(scale) == 1 else scale[which][:, None]), np.float32)

    return Stored(tensor.name, shape, tensor.type, grid, read)


def _packed(tensor: Tensor, operator: Operator, tensors: Mapping[str, Tensor]) -> Stored | None:
    """Weights of 4 or 8 bits in blocks of a row, each block with a scale and perhaps a zero point."""
    import numpy as np

    told = operator.attributes
    bits, block = int(told.get("bits", 4)), int(told["block_size"])
    others = [tensors.get(name) for name in operator.inputs[2:4]]
    rows = int(told.get("N", tensor.dims[0]))
    columns = int(told.get("K", tensor.elements // max(1, rows) * 8 // bits))
    if others[0] is None or bits not in (4, 8) or tensor.type not in ("uint8", "int8", "uint4", "int4"):
        return None
    count = -(-columns // block)
    scale = array(others[0]).astype(np.float32).reshape(rows, count)
    zeros = others[1] if len(others) > 1 and others[1] is not None else None
    middle = np.uint8(1 << (bits - 1)) if zeros is None else None
    zero_rows = None if zeros is None else np.fromfile(zeros.path, np.uint8, zeros.length, offset=zeros.offset)

    def read(which: slice) -> Floats:
        data = np.memmap(tensor.path, np.uint8, "r", tensor.offset, (rows, tensor.length // rows))
        values = unpack(np.asarray(data[which]), bits)[:, : count * block].astype(np.float32)
        if zero_rows is None:
            zero: Any = middle
        else:
            zero = unpack(zero_rows.reshape(rows, -1)[which], bits)[:, :count].astype(np.float32)[:, :, None]
        blocks = (values.reshape(len(values), count, block) - zero) * scale[which][:, :, None]
        return np.asarray(blocks.reshape(len(values), -1)[:, :columns], np.float32)

    grid = Grid("integer", bits, block, symmetric=zeros is None)
    return Stored(tensor.name, (rows, columns), f"int{bits}/{block}", grid, read)


def unpack(data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Numbers of 4 or 8 bits, the first in the low half of a byte."""
    import numpy as np

    if bits == 8:
        return data
    return np.stack([data & 15, data >> 4], axis=-1).reshape(len(data), -1)
