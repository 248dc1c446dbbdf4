"""A GGUF file's tensors against those of the checkpoint it was made from, by llama.cpp's own table of names.

Weights are de-quantised by the `gguf` package. What llama.cpp's converter does to some on the way (rotary rows in
another order, norms plus one) is known for the architectures in UNDERSTOOD; of others, only what agrees is compared.
It reads no metadata beyond the architecture: that is `gguf_metadata`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import census, source_weights
from hallmark.census import Census, Pair, Stored
from hallmark.gguf_file import GgufFile, Tensor
from hallmark.gguf_programs import ENCODER_PREFIX, UNUSED
from hallmark.pairing import joined
from hallmark.source_settings import is_tied
from hallmark.source_weights import SourceTensor
from hallmark.weight_error import Grid, Read

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Architectures whose converter was read: nothing is done to their weights but what LAYOUTS says.
UNDERSTOOD = {"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "bert"}
REORDERED = {"llama"}  # whose queries and keys have their rotary rows interleaved (LlamaModel.permute)
SHIFTED = {"gemma", "gemma2", "gemma3"}  # whose norms have one added
DERIVED = re.compile(r"^rope_(freqs|factors_long|factors_short)\.weight$")  # computed from the configuration
EXPERT = re.compile(r"\.experts\.(\d+)\.")
# What else llama.cpp leaves out: a head for masked words, and its own buffers.
LEFT_OUT = re.compile(r"^(cls|lm_head\.(bias|decoder|dense|layer_norm))\b|rotary_emb\.|\.attn\.(masked_)?bias$")
FLOAT_TYPES = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16"}
# Bits of a weight, columns with a scale of their own, whether it has no zero point, whether scales are rounded too.
GRIDS = {
    "Q4_0": (4, 32, True, False), "Q4_1": (4, 32, False, False), "Q5_0": (5, 32, True, False),
    "Q5_1": (5, 32, False, False), "Q8_0": (8, 32, True, False), "Q2_K": (2, 16, False, True),
    "Q3_K": (3, 16, True, True), "Q4_K": (4, 32, False, True), "Q5_K": (5, 32, False, True),
    "Q6_K": (6, 16, True, True), "IQ4_NL": (4, 32, True, False), "IQ4_XS": (4, 32, True, True),
}  # fmt: skip
# Types that llama-quantize mixes for what was asked; the rest are fallbacks for rows that do not divide into blocks.
MIXED = {
    "Q4_K_M": ("Q4_K", "Q6_K"), "Q4_K_S": ("Q4_K", "Q5_K", "Q6_K"),
    "Q5_K_M": ("Q5_K", "Q6_K"), "Q5_K_S": ("Q5_K", "Q6_K"),
}  # fmt: skip


def weights(file: GgufFile, source: Path, config: Mapping[str, Any]) -> Census:
    """The file's tensors against the checkpoint's; `config` is its config.json."""
    tensors = {name: tensor for name, tensor in source_weights.read(source).items() if tensor.is_float}
    named, unnamed = _names(file, tensors, config)
    found = census.weigh(_pairs(file, named, tensors, config))
    lost = sorted(name for there, parts in named.items() if there not in file.by_name for name in parts)
    rest = [tensor for tensor in file.tensors if tensor.name not in named and not DERIVED.match(tensor.name)]
    found.elements += sum(tensor.elements for tensor in rest)
    known = file.architecture in UNDERSTOOD
    (found.missing if known else found.unknown).extend([*lost, *unnamed])
    (found.surplus if known else found.unknown).extend(sorted(tensor.name for tensor in rest))
    return found


def other_types(file: GgufFile, asked: str) -> tuple[float, dict[str, int]]:
    """Share of the matrices' weights in a type that the asked one does not mix, and the elements of each such type."""
    elements: dict[str, int] = {}
    for tensor in file.tensors:
        if len(tensor.shape) > 1:
            elements[tensor.type] = elements.get(tensor.type, 0) + tensor.elements
    return census.other_types(elements, MIXED.get(asked, (asked,)))


def _names(
    file: GgufFile, tensors: Mapping[str, SourceTensor], config: Mapping[str, Any]
) -> tuple[dict[str, list[str]], list[str]]:
    """Source tensors by their name in the file (experts are joined in one), and those that the table does not name."""
    import gguf

    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    if file.architecture not in numbers:
        return {}, sorted(tensors)
    table = gguf.get_tensor_name_map(numbers[file.architecture], int(file.of_architecture("block_count") or 0))
    named: dict[str, list[str]] = {}
    unnamed = []
    for name in sorted(tensors, key=_in_order):
        if UNUSED.search(name) or LEFT_OUT.search(name):
            continue
        there = table.get_name(_plain(name), try_suffixes=(".weight", ".bias"))
        tied = there == "output.weight" and is_tied(config)
        if there and not (tied and there not in file.by_name):
            named.setdefault(there, []).append(name)
        elif not there:
            unnamed.append(name)
    if "output.weight" in file.by_name and "token_embd.weight" in named:
        named.setdefault("output.weight", named["token_embd.weight"])  # a copy of tied weights
    return named, unnamed


def _plain(name: str) -> str:
    """A source tensor's name as the table spells it."""
    return EXPERT.sub(".experts.", ENCODER_PREFIX.sub("", name)).replace(".gamma", ".weight").replace(".beta", ".bias")


def _in_order(name: str) -> tuple[str, int]:
    """Experts by number, not by text."""
    expert = EXPERT.search(name)
    return EXPERT.sub(".experts.", name), int(expert[1]) if expert else 0


def _pairs(
    file: GgufFile, named: Mapping[str, list[str]], tensors: Mapping[str, SourceTensor], config: Mapping[str, Any]
) -> Iterator[Pair]:
    for tensor in file.tensors:
        if tensor.name in named:
            parts = [tensors[name] for name in named[tensor.name]]
            rows = sum(part.matrix[0] for part in parts)
            told = parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more"
            certain = file.architecture in UNDERSTOOD and (tensor.type in GRIDS or tensor.type in FLOAT_TYPES)
            layouts = _layouts(file.architecture, parts, config)
            yield Pair(_stored(file, tensor), told, (rows, parts[0].matrix[1]), layouts, certain)


def _stored(file: GgufFile, tensor: Tensor) -> Stored:
    """A tensor that is de-quantised row by row."""
    import gguf
    import numpy as np

    columns = tensor.shape[0] if tensor.shape else 1
    rows = tensor.elements // max(1, columns)
    kind = gguf.GGMLQuantizationType[tensor.type]

    def read(which: slice) -> NDArray[np.float32]:
        data = np.memmap(file.path, np.uint8, "r", tensor.offset, (rows, tensor.bytes // max(1, rows)))
        return np.asarray(gguf.dequantize(np.asarray(data[which]), kind), np.float32).reshape(-1, columns)

    if tensor.type in FLOAT_TYPES:
        grid = Grid(FLOAT_TYPES[tensor.type])
    else:
        bits, block, symmetric, nested = GRIDS.get(tensor.type, (4, 32, True, False))
        grid = Grid("integer", bits, block, symmetric, nested)
    return Stored(tensor.name, (rows, columns), tensor.type, grid, read)


def _layouts(architecture: str, parts: list[SourceTensor], config: Mapping[str, Any]) -> list[Read]:
    """What the source's tensor may have been turned into; one layout where the architecture is understood."""
    name = parts[0].name
    plain = joined(parts)
    is_norm, is_rotary = name.endswith("norm.weight"), re.search(r"\.([qk])_proj\.(weight|bias)$", name)
    layouts = [plain]
    if is_norm:
        layouts.append(lambda which: plain(which) + 1)
    elif is_rotary and len(parts) == 1:
        queries = config.get("num_attention_heads", 1)
        heads = queries if is_rotary[1] == "q" else config.get("num_key_value_heads") or queries
        layouts.append(_interleaved(parts[0], int(heads)))
    if architecture not in UNDERSTOOD:
        return layouts
    changed = architecture in (SHIFTED if is_norm else REORDERED)
    return layouts[-1:] if changed else layouts[:1]


def _interleaved(part: SourceTensor, heads: int) -> Read:
    """Rows (of a bias: columns) in the order that `LlamaModel.permute` gives them."""
    import numpy as np

    count = part.matrix[0] if len(part.shape) > 1 else part.matrix[1]
    order = (
        np.arange(count).reshape(heads, 2, -1).swapaxes(1, 2).ravel() if count % (2 * heads) == 0 else np.arange(count)
    )

    def read(which: slice) -> NDArray[np.float32]:
        return part.rows(order[which]) if len(part.shape) > 1 else part.rows(which)[:, order]

    return read
