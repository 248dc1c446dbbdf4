"""From a checkpoint to OpenVINO IR: export, weight compression, tokenizer. For its toolchain; measures nothing.

The exporters exit without an error when weights are missing, overflow, or a tokenizer cannot be converted, so each
step here looks at what it was given or made, and raises.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MODEL, TOKENIZER, DETOKENIZER = "openvino_model.xml", "openvino_tokenizer.xml", "openvino_detokenizer.xml"
CLASSES = {"causal-lm": "AutoModelForCausalLM", "sentence-similarity": "AutoModel"}
EXPORTER_TASKS = {"causal-lm": "text-generation-with-past", "sentence-similarity": "feature-extraction"}
COMPANIONS = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model", "vocab.txt", "vocab.json", "merges.txt", "chat_template.jinja",
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip
PLAIN_TEXT = "The quick brown fox jumps over the lazy dog. It's 3.14, isn't it?\nYes, (mostly) 2024!"
PIECE = 1 << 22  # values looked at in one go
# optimum-intel 2.2.0 refuses these beyond transformers 5.0. Their export with 5.5.4 was compared with PyTorch: Gemma 3
# 270M in float16 has a mean KL divergence of 1.3e-6 over 900 tokens, beyond its sliding window too.
BEYOND_ITS_LIMIT = ("gemma3_text",)


def export(source: Path, folder: Path, task: str, half: bool, threads: int) -> Path:
    """Write the checkpoint's IR into `folder` and return its .xml; weights as float16 if `half`, else as they are.

    A language model is stateful: its key-value cache is inside. Raises ValueError for a checkpoint whose tensors do not
    fit its configuration, or whose values do not fit float16.
    """
    import torch
    from optimum.exporters.openvino.convert import export_from_model
    from optimum.exporters.tasks import TasksManager
    from optimum.intel import OVConfig

    torch.set_num_threads(threads)
    model = _load(source, task, half)
    if model.config.model_type in BEYOND_ITS_LIMIT:
        made = TasksManager.get_exporter_config_constructor(
            "openvino", model, task=EXPORTER_TASKS[task], library_name="transformers"
        )
        getattr(made, "func", made).MAX_TRANSFORMERS_VERSION = None
    with torch.inference_mode():
        export_from_model(
            model,
            folder,
            task=EXPORTER_TASKS[task],
            ov_config=OVConfig(dtype="fp16" if half else None),
            stateful=task == "causal-lm",
            patch_16bit_model=model.dtype in (torch.float16, torch.bfloat16),
        )
    del model
    gc.collect()  # the exporter leaves cycles that hold the weights; what comes next needs the memory
    return folder / MODEL


def _load(source: Path, task: str, half: bool) -> Any:
    """The checkpoint as stored, or in float16: its weights only, not what is computed from the configuration."""
    import torch
    import transformers

    model, loaded = getattr(transformers, CLASSES[task]).from_pretrained(
        source, dtype=torch.float16 if half else "auto", local_files_only=True, output_loading_info=True
    )
    for what in ("missing_keys", "mismatched_keys"):
        if loaded.get(what):
            names = ", ".join(sorted(str(name) for name in loaded[what])[:5])
            raise ValueError(f"{source}: {what.replace('_', ' ')}: {names}; they would be filled in at random")
    for name, values in model.named_parameters():
        pieces = values.detach().flatten().split(PIECE)
        lost = sum(len(piece) - int(torch.isfinite(piece).sum()) for piece in pieces)
        if lost:
            kind = "float16, which ends at 65504: take an int8 or int4 variant" if half else str(values.dtype)
            raise ValueError(f"{source}: {name} has {lost} values that are NaN or infinite in {kind}")
    return model.eval()


def compress(model: Any, recipe: Mapping[str, Any], samples: Sequence[Mapping[str, Any]] = ()) -> Any:
    """The IR with its weights compressed as `recipe` says: `bits` 8 or 4, `symmetric`, and for 4 `group_size`.

    8 bits: one scale per row. 4 bits: embeddings and the output layer stay at 8; a group size that does not divide a
    weight's columns becomes the largest power of two that does, from 32 up, and else that weight stays at 8 bits. `awq`
    (trying `awq_steps` exponents for each group) and `scale_estimation` correct by the activations on `samples`.
    """
    import nncf
    from nncf.quantization import advanced_parameters as advanced

    kind = f"INT{recipe['bits']}_{'SYM' if recipe['symmetric'] else 'ASYM'}"
    mode = nncf.CompressWeightsMode[kind]
    if recipe["bits"] == 8:
        return nncf.compress_weights(model, mode=mode)
    calibrated = {"dataset": nncf.Dataset(list(samples)), "subset_size": len(samples)} if samples else {}
    return nncf.compress_weights(
        model,
        mode=mode,
        ratio=1.0,
        group_size=recipe["group_size"],
        awq=recipe.get("awq") or None,
        scale_estimation=recipe.get("scale_estimation") or None,
        advanced_parameters=advanced.AdvancedCompressionParameters(
            group_size_fallback_mode=advanced.GroupSizeFallbackMode.ADJUST,
            awq_params=advanced.AdvancedAWQParameters(steps=recipe.get("awq_steps", 100)),
        ),
        **calibrated,
    )


def calibration_samples(model: Any, rows: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Token ids as inputs of a stateful language model, each from an empty cache."""
    import numpy as np

    names = {name for port in model.inputs for name in port.get_names()}
    samples = []
    for row in rows:
        ids = np.array([row], dtype=np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "position_ids": np.arange(ids.shape[1], dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        samples.append({name: value for name, value in feeds.items() if name in names})
    return samples


def convert_tokenizer(source: Path, out: Path, task: str, max_tokens: int | None) -> tuple[Any, str]:
    """Write the source's tokenizer as IR into `out`, a language model's detokenizer too.

    Returns it compiled, to be called with a list of texts, and the name of the class it was made from.

    `max_tokens` cuts every text to so many tokens. Raises ValueError when nothing can be made of the tokenizer, or when
    what is made gives other ids for plain text.
    """
    import openvino
    import openvino_tokenizers
    from optimum.exporters.openvino.utils import set_simplified_chat_template
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    except Exception as error:
        raise ValueError(f"{source}: its tokenizer cannot be read: {error}") from error
    name = type(tokenizer).__name__
    expected = list(tokenizer(PLAIN_TEXT, truncation=max_tokens is not None, max_length=max_tokens)["input_ids"])
    generates = task == "causal-lm"
    if generates:  # prompts of different lengths must end at the same position
        tokenizer.padding_side = tokenizer.truncation_side = "left"
    try:
        made = openvino_tokenizers.convert_tokenizer(
            tokenizer, with_detokenizer=generates, max_length=max_tokens, truncation=max_tokens is not None
        )
    except Exception as error:
        raise ValueError(f"{source}: its tokenizer ({name}) cannot be converted to OpenVINO: {error}") from error
    models = made if isinstance(made, tuple) else (made,)
    set_simplified_chat_template(models[0])
    for model, file in zip(models, (TOKENIZER, DETOKENIZER), strict=False):
        openvino.save_model(model, out / file, compress_to_fp16=False)
    compiled = openvino.compile_model(models[0], "CPU")
    found = compiled([PLAIN_TEXT])["input_ids"][0].tolist()
    if found != expected:
        raise ValueError(
            f"{source}: its tokenizer ({name}), converted to OpenVINO, gives ids {found} for {PLAIN_TEXT!r}, the "
            f"source's gives {expected}; check tokenizer_class in tokenizer_config.json"
        )
    return compiled, name


def copy_companions(source: Path, out: Path) -> None:
    """Put the checkpoint's small files beside the IR, byte for byte: what was saved again would hold other paths."""
    pooling = [path.relative_to(source).as_posix() for path in source.glob("*_Pooling/config.json")]
    for name in (*COMPANIONS, *sorted(pooling)):
        if (source / name).is_file():
            (out / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, out / name)
