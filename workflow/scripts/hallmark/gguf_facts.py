"""What the plan needs to know of a GGUF before it is turned back into a checkpoint. Reads its header alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hallmark import gguf_file, materialise
from hallmark.source_errors import SourceError


def read(path: Path) -> dict[str, Any]:
    """`checkpoint.facts` of the float32 checkpoint that a GGUF is turned back into; `weight_bytes` are the GGUF's own.

    Raises SourceError when it is no GGUF, is not whole, or is of an architecture that cannot be turned back.
    """
    try:
        found = gguf_file.read(path)
        architecture = materialise.architecture_of(found.metadata)
        embedding = found.by_name["token_embd.weight"].shape
    except (materialise.Unsupported, gguf_file.DamagedFile) as error:
        raise SourceError(str(error).replace(f"{path}: ", "")) from None
    except KeyError as error:
        raise SourceError(f"the GGUF has no {error.args[0]}") from None
    return {
        "architecture": architecture.name,
        "model_type": architecture.model_type,
        "parameters": found.elements,
        "vocab_size": embedding[1],
        "hidden": embedding[0],
        "layers": found.of_architecture("block_count"),
        "weight_bytes": sum(tensor.bytes for tensor in found.tensors),
        "largest": max(tensor.elements for tensor in found.tensors),
        "dtype": "float32",
    }
