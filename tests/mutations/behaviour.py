"""Seeded defects of an engine while it runs, and the gates that must catch each. Runs nothing by itself.

They stand for faults that lie in code and not in an artifact's files: caches, positions, masks, pooling, tokenizers as
they are called, speed. What they do is in `broken_models` and `broken_encoders`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.slowed_engine import Slowed
from tests.mutations import broken_encoders as encoders
from tests.mutations import broken_models as models
from tests.mutations.catalogue import Mutation

MODELS = ("smollm2/onnx/int8", "smollm2/gguf/q8_0", "smollm2/openvino/int8")
PRECISE = ("smollm2/openvino/fp16",)  # whose steps and prompts are computed alike
ENCODERS = ("minilm/onnx/int8_dynamic", "minilm/gguf/q8_0", "minilm/openvino/int8")
PADDING = ("minilm/onnx/int8_dynamic", "minilm/openvino/int8")  # llama.cpp does not pad
TIMED = ("minilm/onnx/int8_dynamic",)
RATIOS = ("latency_ratio", "latency_cpu_ratio")
OPENING_S = 2.0

# Gates that the shipped policy has not, for the defects of speed. Ratios are to the same artifact without the defect.
LIMITS: dict[str, dict[str, float]] = {
    "latency_ratio": {"min": 0.98},
    "latency_cpu_ratio": {"min": 0.98},
    "memory_growth_mb_per_1000": {"max": 100},
    "load_s": {"max": 1.0},
}


def slow_to_open(runner: Any) -> Any:
    """Any runner: opening works for two seconds more."""
    ends = time.perf_counter() + OPENING_S
    while time.perf_counter() < ends:
        sum(range(1000))
    return runner


def slowed(share: float) -> Callable[[Any], Any]:
    """Any runner: each answer takes so much more work."""
    return lambda runner: Slowed(runner, share)


def seeded(name: str, subjects: tuple[str, ...], caught_by: tuple[str, ...], apply: Callable[[Any], Any],
           report: str = "") -> Mutation:  # fmt: skip
    return Mutation(name, "runner", subjects, caught_by, apply, report)


MUTATIONS = (
    seeded("cache_not_cleared", MODELS, ("state_leak",), models.CacheNotCleared, "ggml-org/llama.cpp#28056"),
    seeded("positions_off_by_one", PRECISE, ("decode_kl_mean",), models.positions_off_by_one,
           "microsoft/onnxruntime-genai#2354"),
    seeded("tokens_off_by_one_in_steps", MODELS[1:2], ("decode_kl_mean",), models.TokensOffByOne),
    seeded("scores_of_last_step", MODELS[1:2], ("decode_kl_mean",), models.StaleScores),
    seeded("nan_while_decoding", MODELS[1:2], ("nonfinite_steps",), models.NanWhileDecoding,
           "turboderp/exllama#222"),
    seeded("logits_one_token_late", MODELS[1:2], ("kl_mean",), models.RowsLate),
    seeded("logits_beyond_float16", MODELS[1:2], ("nonfinite_logits",), models.Float16,
           "microsoft/onnxruntime#26732"),
    seeded("input_ids_shifted", MODELS[1:2], ("kl_mean",), models.InputsShifted),
    seeded("context_of_128_tokens", MODELS[1:], ("long_kl_mean",), models.ShortContext),
    seeded("stop_tokens_ignored", MODELS, ("endless_outputs",), models.NeverStops,
           "triton-inference-server/tensorrtllm_backend#486"),
    seeded("chat_template_lost", MODELS[1:2], ("chat_mismatch",), models.NoTemplate),
    seeded("start_token_added", MODELS[1:], ("tokenizer_boundary",), models.StartTwice),
    seeded("start_token_lost", ENCODERS, ("tokenizer_boundary",), models.StartLost, "oobabooga/textgen#6050"),
    seeded("text_ids_shifted", MODELS[1:2] + ENCODERS[:1], ("tokenizer_other", "tokenizer_special"),
           models.IdsShifted),
    seeded("vector_holds_the_last", ENCODERS, ("state_leak",), encoders.LastVector),
    seeded("texts_cut_at_128", ENCODERS, ("length_cosine_min",), encoders.TextsCut),
    seeded("nan_for_long_texts", ENCODERS[:1], ("nonfinite_values",), encoders.NanForLongTexts),
    seeded("batch_out_of_order", ENCODERS, ("batch_change",), encoders.RowsExchanged),
    seeded("mask_ignored", PADDING, ("batch_change",), encoders.mask_ignored, "huggingface/candle#1798"),
    seeded("padding_pooled", PADDING, ("batch_change",), encoders.padding_pooled),
    seeded("first_token_pooled", PADDING, ("cosine_mean",), encoders.first_token_pooled, "ggml-org/llama.cpp#5500"),
    seeded("slower_by_5_percent", TIMED, RATIOS, slowed(0.05)),
    seeded("slower_by_10_percent", TIMED, RATIOS, slowed(0.1)),
    seeded("slower_by_30_percent", TIMED, RATIOS, slowed(0.3), "microsoft/onnxruntime#20562"),
    seeded("leak_of_1_mb_a_request", TIMED, ("memory_growth_mb_per_1000",), encoders.Leaking,
           "microsoft/onnxruntime#11118"),
    seeded("opens_2_seconds_later", TIMED, ("load_s",), slow_to_open, "openvinotoolkit/openvino#17033"),
)  # fmt: skip
