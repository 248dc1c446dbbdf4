"""Lint: the files' tensors against the model class that the config names, by transformers' own loader.

`compare` runs in the toolchain `torch` on the meta device: the model is built from the config and given the names and
shapes in the files' headers, so renamed, merged, tied and ignored tensors are what the class declares, for every
architecture that transformers knows. No weight is read. `judge` makes findings of its answer, in the core.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hallmark import checkpoint as checkpoints
from hallmark.checkpoint import CONFIG, Checkpoint
from hallmark.lint.findings import Finding, found, some
from hallmark.lint.settings import references

# Buffers that follow from the config, which older versions of transformers saved.
BUFFERS = re.compile(r"(^|\.)(position_ids|rotary_emb\.inv_freq|masked_bias|token_type_ids)$")
MERGED = re.compile(r"tensors destined for (\S+?)\.? ")  # in the loader's report, for what it could not put together
LAYER = re.compile(r"(.*?\.)(\d+)\.")


def compare(inputs: Mapping[str, Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """How the checkpoint in `inputs["source"]` fits its class. Option `remote_code`: whether its own code may run.

    {"class", "missing": [name], "surplus": [name], "shapes": [[name, in the files, of the class]], "incomplete": [name]
    whose parts in the files do not fit together, "tied": [[name, name]] that are both in the files, "failure": why the
    model could not be built, or ""}.
    """
    import torch

    folder, allowed = inputs["source"], bool(options.get("remote_code"))
    checkpoint = checkpoints.of_folder(folder)
    answer: dict[str, Any] = {"class": "", "missing": [], "surplus": [], "shapes": [], "incomplete": [], "tied": []}
    answer["failure"] = ""
    said = _Said()
    try:
        logging.getLogger("transformers.modeling_utils").addHandler(said)
        config, kind = _class(folder, checkpoint, allowed)
        answer["class"] = kind.__name__
        with torch.device("meta"), _meta_equal():
            model, loaded = kind.from_pretrained(
                None,
                config=config,
                state_dict=_empty(checkpoint),
                device_map="meta",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except Exception as error:  # whatever transformers raises for a config that it cannot make a model of
        if parts := sorted({name for text in said.texts for name in MERGED.findall(text)}):
            return answer | {"incomplete": parts}
        return answer | {"failure": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
    names = checkpoint.tensors.keys()
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return answer | {
        "missing": sorted(loaded["missing_keys"]),
        "surplus": sorted(loaded["unexpected_keys"]),
        "shapes": sorted([name, list(have), list(want)] for name, have, want in loaded["mismatched_keys"]),
        "tied": sorted([first, second] for first, second in tied.items() if {first, second} <= names),
    }


class _Said(logging.Handler):
    """Keeps what transformers logs: the loader names there alone what it could not put together."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _class(folder: Path, checkpoint: Checkpoint, allowed: bool) -> tuple[Any, Any]:
    """The config, and the class that `architectures` names: transformers', or where allowed the checkpoint's own."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=allowed)
    (name, *_) = checkpoint.config["architectures"]
    own = [text for text in references(checkpoint).get(CONFIG, ()) if text.rpartition(".")[2] == name]
    if allowed and own:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        return config, get_class_from_dynamic_module(own[0], folder, local_files_only=True)
    kind = getattr(transformers, name, None)
    if kind is None:
        raise ValueError(f"transformers {transformers.__version__} has no class {name}")
    return config, kind


def _empty(checkpoint: Checkpoint) -> dict[str, Any]:
    """The files' tensors without values. Their types do not matter here, as shapes and names are compared."""
    import torch

    return {
        name: torch.empty(tensor.shape, dtype=torch.float32, device="meta")
        for name, tensor in checkpoint.tensors.items()
    }


def _meta_equal() -> Any:
    """Says that two tensors without values are equal; transformers asks it of tied ones that are both there."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.equal:
                return args[0].shape == args[1].shape
            return function(*args, **(kwargs or {}))

    return Mode()


def judge(answer: Mapping[str, Any], checkpoint: Checkpoint) -> Iterator[Finding]:
    """The findings in an answer of `compare`."""
    kind = answer["class"]
    if answer["failure"]:
        yield found("cannot_build", CONFIG, answer["failure"])
        return
    if missing := answer["missing"]:
        yield found("missing", missing[0], f"{_tensors(missing)} of {kind} missing in the files: {some(missing)}")
    if parts := answer["incomplete"]:
        what = f"{_tensors(parts)} of {kind} whose parts in the files do not fit together: {some(parts)}"
        yield found("incomplete", parts[0], what)
    for name, have, want in answer["shapes"]:
        yield found("shape_differs", name, f"{_shape(have)} in the files, {_shape(want)} in {kind} by config.json")
    surplus = [name for name in answer["surplus"] if not BUFFERS.search(name)]
    layers = _layers(surplus, checkpoint)
    if layers:
        count = checkpoint.text_config.get("num_hidden_layers")
        yield found("surplus_layers", layers[0], f"{_tensors(layers)} of layers beyond the {count} of config.json")
    if others := [name for name in surplus if name not in layers]:
        yield found("surplus", others[0], f"{_tensors(others)} that {kind} has no place for: {some(others)}")


def _layers(surplus: list[str], checkpoint: Checkpoint) -> list[str]:
    """Surplus tensors of layers whose number is not below the config's, where lower ones lie in the files too."""
    count = checkpoint.text_config.get("num_hidden_layers")
    if not isinstance(count, int):
        return []
    found_in = {name: match for name in surplus if (match := LAYER.match(name)) and int(match[2]) >= count}
    below = {match[1] for match in map(LAYER.match, checkpoint.tensors) if match and int(match[2]) < count}
    return [name for name, match in found_in.items() if any(path.endswith(match[1]) or match[1].endswith(path)
                                                              for path in below)]  # fmt: skip


def _tensors(names: list[str]) -> str:
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''}"


def _shape(sizes: list[int]) -> str:
    return " × ".join(map(str, sizes)) or "one value"
