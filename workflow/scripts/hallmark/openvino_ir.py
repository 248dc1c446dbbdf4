"""What OpenVINO IR files (.xml and .bin) say of themselves: constants, ports, states, notes. Runs without OpenVINO.

The .xml is read as a stream and the .bin in pieces, so the memory needed does not grow with the model.
Source: https://docs.openvino.ai/2026/documentation/openvino-ir-format.html
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BITS = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8e4m3": 8, "f8e5m2": 8, "f8e8m0": 8, "i8": 8, "u8": 8, "u6": 6,
    "u4": 4, "i4": 4, "nf4": 4, "f4e2m1": 4, "u3": 3, "u2": 2, "i2": 2, "u1": 1,
}  # fmt: skip
SCALES = ("/scale", "/zero_point")  # how NNCF names what belongs to a compressed weight
CHECKED = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2"}
PIECE = 1 << 22  # values looked at in one go


class DamagedIR(ValueError):
    """An IR's files are not whole or do not belong together; the text names the file and what is wrong."""


@dataclass(frozen=True)
class Constant:
    """Values in the .bin: `offset` and `size` in bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_weight(self) -> bool:
        """Whether it holds numbers that were learned: no index, no lone factor, no scale or zero point."""
        return self.kind in BITS and self.elements > 1 and not self.name.endswith(SCALES)


@dataclass
class Network:
    """The content of an .xml. A dynamic dimension of a port is -1; `notes` are the file's rt_info, nested.

    `readers` are the types and names of the operations that read a constant, as it is or converted; `epsilons` those
    that operations have as an attribute.
    """

    constants: list[Constant] = field(default_factory=list)
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    readers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    epsilons: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> list[Constant]:
        """The weights. A tied one is one constant with two readers, so it counts once."""
        return [constant for constant in self.constants if constant.is_weight]


def read(path: Path) -> Network:
    """Read an .xml. Raises DamagedIR when it is not whole, or holds a document type, which IR files never do."""
    network = Network()
    layers: dict[str, tuple[str, str]] = {}
    edges: dict[str, list[str]] = {}
    depth = 0
    try:
        for event, element in _events(path):
            depth += 1 if event == "start" else -1
            if event == "end" and element.tag == "layer":
                _add_layer(network, element)
                layers[element.attrib["id"]] = (element.attrib["type"], element.attrib["name"])
            if event == "end" and element.tag == "edge":
                edges.setdefault(element.attrib["from-layer"], []).append(element.attrib["to-layer"])
            if event == "end" and element.tag == "rt_info" and depth == 1:
                network.notes = _notes(element)
            if event == "end" and (element.tag in ("layer", "edge") or depth == 1):
                element.clear()
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise DamagedIR(f"{path}: not a whole IR file: {type(error).__name__}: {error}") from error
    network.readers = {
        name: [layers[to] for to in _readers(number, layers, edges)]
        for number, (kind, name) in layers.items()
        if kind == "Const"
    }
    if not network.outputs:
        raise DamagedIR(f"{path}: has no outputs")
    return network


def _readers(number: str, layers: dict[str, tuple[str, str]], edges: dict[str, list[str]]) -> Iterator[str]:
    """The layers that read one, seen through those that only convert it."""
    for to in edges.get(number, ()):
        if to in layers and layers[to][0] == "Convert":
            yield from _readers(to, layers, edges)
        elif to in layers:
            yield to


def _events(path: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    """Parsed in pieces. The parser here would expand entities without bounds, so declarations are refused."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            if b"<!DOCTYPE" in piece or b"<!ENTITY" in piece:
                raise ValueError("holds a document type declaration")
            parser.feed(piece)
            yield from parser.read_events()
    parser.close()
    yield from parser.read_events()


def _add_layer(network: Network, layer: ElementTree.Element) -> None:
    kind, name = layer.attrib["type"], layer.attrib["name"]
    data = layer.find("data")
    network.operations[kind] += 1
    if data is not None and "eps" in data.attrib:
        network.epsilons.append(float(data.attrib["eps"]))
    if kind == "Const" and data is not None:
        shape = tuple(int(size) for size in data.attrib["shape"].split(",") if size.strip())
        offset, size = int(data.attrib["offset"]), int(data.attrib["size"])
        network.constants.append(Constant(name, data.attrib["element_type"], shape, offset, size))
    elif kind == "ReadValue" and data is not None:
        network.states.append(data.attrib["variable_id"])
    elif kind == "Parameter":
        network.inputs[name] = _port(layer.find("output/port"))
    elif kind == "Result":
        names = layer.attrib.get("output_names")
        network.outputs[names or name] = _port(layer.find("input/port"))


def _port(port: ElementTree.Element | None) -> dict[str, Any]:
    if port is None:
        raise ValueError("a port is missing")
    return {
        "type": port.attrib["precision"].lower().replace("fp", "f"),
        "shape": [int(size.text or "") for size in port.iter("dim")],
    }


def _notes(element: ElementTree.Element) -> dict[str, Any]:
    """rt_info as nested dicts of text: `<a><b value="1"/></a>` is `{"a": {"b": "1"}}`."""
    return {
        child.attrib.get("name", child.tag) if child.tag == "info" else child.tag: (
            child.attrib["value"] if "value" in child.attrib else _notes(child)
        )
        for child in element
    }


def check_size(network: Network, path: Path) -> int:
    """The .bin's bytes. Raises DamagedIR when constants lie beyond its end."""
    size = path.stat().st_size
    for constant in network.constants:
        if constant.offset + constant.size > size:
            raise DamagedIR(f"{path}: has {size} bytes, {constant.name} ends at {constant.offset + constant.size}")
    return size


def count_nonfinite(network: Network, path: Path) -> tuple[int, dict[str, int]]:
    """NaN and infinite values among the floating-point constants, scales too, and how many by constant."""
    import numpy as np

    found: dict[str, int] = {}
    checked = {constant.offset: constant for constant in network.constants if constant.kind in CHECKED}
    with path.open("rb") as stream:
        for constant in checked.values():
            stream.seek(constant.offset)
            left, lost, kind = constant.elements, 0, np.dtype(CHECKED[constant.kind])
            while left > 0:
                values = np.fromfile(stream, kind, min(left, PIECE))
                if not len(values):
                    raise DamagedIR(f"{path}: ends inside {constant.name}")
                lost += len(values) - int(_finite(values, constant.kind).sum())
                left -= len(values)
            if lost:
                found[constant.name] = lost
    return sum(found.values()), found


def _finite(values: NDArray[Any], kind: str) -> NDArray[np.bool_]:
    import numpy as np

    if kind == "bf16":  # numpy has no such type: not finite when all eight bits of the exponent are set
        return np.asarray((values & 0x7F80) != 0x7F80)
    return np.asarray(np.isfinite(values))


def type_histogram(network: Network) -> dict[str, dict[str, int]]:
    """Weights by type, and by group size where one scale serves part of a row: `{"u4 group 64": {"tensors", ...}}`."""
    scales = {constant.name for constant in network.constants if constant.name.endswith(SCALES)}
    found: dict[str, dict[str, int]] = {}
    for weight in network.weights:
        kind = weight.kind
        if f"{weight.name}/scale" in scales:
            kind += f" group {weight.shape[-1]}" if len(weight.shape) == 3 else " row"
        entry = found.setdefault(kind, {"tensors": 0, "parameters": 0})
        entry["tensors"] += 1
        entry["parameters"] += weight.elements
    return dict(sorted(found.items()))
