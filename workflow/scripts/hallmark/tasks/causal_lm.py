"""Language models: how far an artifact's next-token distributions are from its source's, and how fast it is.

Accuracy compares log-probabilities on one fixed token set, made with the source's tokenizer and kept with the
source's answers; what shows only step by step is looked at in `hallmark.generation`. It knows no benchmark questions.
Speed is what one request at a time sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from hallmark import choices, generation, intervals, statistics, token_set, tokenizer_sample
from hallmark.distributions import divergence, log_softmax, loss, nonfinite
from hallmark.looks import attempt
from hallmark.progress import track
from hallmark.pytorch import CausalLM
from hallmark.speed import COMMON_METRICS, COMMON_OPTIONS, FIRST_LOOK
from hallmark.statistics import Estimate
from hallmark.tasks import INSPECTED, Metric, Option, timed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "causal-lm"
# The modules that decide the numbers of this task's reference and accuracy; speed adds hallmark.speed.
CODE = (
    "hallmark.accuracy_jobs",
    "hallmark.tasks.causal_lm",
    "hallmark.distributions",
    "hallmark.generation",
    "hallmark.looks",
    "hallmark.statistics",
    "hallmark.token_set",
    "hallmark.tokenizer_sample",
    "hallmark.tokenizer_corpus",
    "hallmark.tokenizer_difference",
    "hallmark.chat",
    "hallmark.pytorch",
    "hallmark.worker",
)

REFERENCE_OPTIONS: dict[str, Option] = {
    "blocks": Option(32, "windows of text, each the beginning of another article; the units of the intervals"),
    "tokens": Option(256, "tokens of a window; the predictions of its second half are scored", least=2),
    "strings": Option(2000, "strings on which the tokenizers are compared"),
    **generation.OPTIONS,
}
SPEED_OPTIONS: dict[str, Option] = {
    **COMMON_OPTIONS,
    "rounds": Option(100, "at most so many timed requests to each engine", least=FIRST_LOOK),
    "warmup_rounds": Option(6, "at most so many requests before, less once the engines settle"),
    "warmup_window": Option(2, "so many last requests must bring no gain for the engines to count as settled"),
    "prompt_tokens": Option(64, "tokens of a prompt"),
    "decode_tokens": Option(8, "tokens decoded after each prompt"),
}
MORE = True  # with the option `more` the reference has so many times the blocks and prompts, as far as the text goes
OPTIONS: dict[str, Option] = {**REFERENCE_OPTIONS, **SPEED_OPTIONS}
FIRST_ANSWER = {"prompt_tokens": 8, "decode_tokens": 1}  # options of the short request that ends an opening
FROM_LOGITS = ("kl_mean", "kl_p99", "kl_max", "top1_agreement", "perplexity_ratio", "perplexity", "source_perplexity")

METRICS = {
    "kl_mean": Metric("accuracy", "nat", "lower", "mean Kullback-Leibler divergence from source to artifact per token"),
    "kl_p99": Metric("accuracy", "nat", "lower", "99th percentile of the divergence over tokens"),
    "kl_max": Metric("accuracy", "nat", "lower", "largest divergence of a token; no interval, it is the worst seen"),
    "top1_agreement": Metric("accuracy", "", "higher", "share of tokens where both predict the same most likely token"),
    "perplexity_ratio": Metric("accuracy", "", "lower", "artifact's perplexity over the source's, on the same tokens"),
    "perplexity": Metric("accuracy", "", "lower", "artifact's perplexity on the token set"),
    "source_perplexity": Metric("accuracy", "", "lower", "source's perplexity on the token set"),
    "nonfinite_logits": Metric("accuracy", "logits", "lower", "logits that are NaN or infinite; the rest is null then"),
    **generation.METRICS,
    **tokenizer_sample.METRICS,
    "chat_mismatch": tokenizer_sample.CHAT_METRIC,
    **choices.METRICS,
    "ttft_ms": timed("ms", "lower", "time to the first token of a prompt of prompt_tokens, median"),
    "source_ttft_ms": timed("ms", "lower", "the same of the source on PyTorch"),
    "prefill_tokens_per_s": timed("tokens/s", "higher", "prompt tokens over time to the first token, median"),
    "prefill_ratio": timed("", "higher", "how many times faster than the source to the first token"),
    "decode_tokens_per_s": timed("tokens/s", "higher", "tokens decoded one by one per second, median"),
    "source_decode_tokens_per_s": timed("tokens/s", "higher", "the same of the source on PyTorch"),
    "decode_ratio": timed("", "higher", "how many times faster than the source at decoding"),
    "decode_cpu_ratio": timed("", "higher", "how many times less CPU time than the source at decoding", "cpu"),
    **COMMON_METRICS,
    **INSPECTED,
}
# Those of `sample`'s times that are drawn one by one.
TIMES = {"first": "Time to the first token", "per_token": "Time per decoded token"}


def reference_bytes(options: Mapping[str, Any], vocab: int) -> int:
    """Bytes of the reference's log-probabilities: predictions times vocabulary times 4. The rest is under 1 MB."""
    blocks = int(options["blocks"]) * int(options.get("more", 1))
    return (blocks * _scored(int(options["tokens"])) + generation.DECODED + 1) * vocab * 4


def _scored(tokens: int) -> int:
    """Predictions that are scored in a window: those of the tokens of its second half."""
    return tokens - tokens // 2


@contextmanager
def open_reference(source: Path, options: Mapping[str, Any]) -> Iterator[CausalLM]:
    """The source on PyTorch eager, with `options["threads"]` threads; with `remote_code`, its own code may run."""
    yield CausalLM(source, int(options["threads"]), bool(options.get("remote_code")))


def reference(runner: Any, data: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the token set and what the source answers into the folder `out`, with what `generation` asks it.

    tokens.npy    int32 (blocks, tokens); window i is the beginning of an article, with the tokenizer's special tokens
    logprobs.npy  float32 (blocks, scored, vocabulary): log-probabilities of the token after each scored position
    pool.npy      int32 (n,): tokens of the rest of the articles, for prompts
    strings.json  strings and conversations with the source tokenizer's ids
    """
    import numpy as np

    texts = token_set.texts(data)
    tokens, pool, titles = token_set.choose(runner, texts, options)
    np.save(out / "tokens.npy", tokens)
    np.save(out / "pool.npy", pool)
    added = list(runner.special()["added"])
    strings = tokenizer_sample.choose([text["text"] for text in texts], int(options["strings"]), added)
    tokenizer_sample.write(out, runner, strings, conversations=True)
    losses = []
    with (out / "logprobs.npy").open("wb") as file:  # not a memory map, whose pages would count as this process's
        for number, block in enumerate(track(tokens, "blocks")):
            logits, lost = _scored_logits(runner, block)
            if lost:
                where = f"block {number} ({titles[number]})"
                raise ValueError(f"the source answers {where} with {lost} NaN or infinite logits")
            logprobs = log_softmax(logits)
            if number == 0:
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(tokens), *logprobs.shape)}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(np.ascontiguousarray(logprobs, "<f4").data)
            losses.append(loss(logprobs, block[-len(logprobs) :]))
    notes = generation.ask_source(runner, tokens, pool, out, options)
    return {
        "perplexity": float(np.exp(np.mean(losses))),
        "vocabulary": logprobs.shape[-1],
        "titles": titles,
        **notes,
    }


def _scored_logits(runner: Any, block: NDArray[np.int32]) -> tuple[NDArray[np.float32], int]:
    """The logits that predict the second half of a window, and how many of all the window's are not finite."""
    import numpy as np

    logits = np.asarray(runner.logits(block.tolist()), np.float32)
    if logits.shape[0] != len(block):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(block)} tokens")
    first = len(block) - _scored(len(block)) - 1
    return logits[first:-1], nonfinite(logits)


def accuracy(runner: Any, reference: Path, data: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Estimate]:
    """Compare an artifact with the reference, one block at a time. Writes samples.json (numbers per block) into
    `out`.

    NaN or infinite logits are counted in `nonfinite_logits`; every metric that depends on logits is null then, and so
    are all of these where the artifact's vocabulary has another size than the source's.
    """
    import numpy as np

    tokens = np.load(reference / "tokens.npy")
    looks = generation.Looks(runner, reference)
    looks.before()
    blocks = _Blocks()
    metrics = attempt(
        {name: METRICS[name] for name in (*FROM_LOGITS, "nonfinite_logits")},
        lambda: _compare_blocks(runner, reference, tokens, blocks),
    )
    half = tokens.shape[1] - _scored(tokens.shape[1])
    found, answers = looks.after(tokens[0, :half], tokens[0, half:], blocks.own)
    tokenizer, examples = tokenizer_sample.compare(reference, runner)
    conversations, wrong = tokenizer_sample.compare_chat(reference, runner)
    samples = {
        **blocks.numbers,
        "kl": np.round(blocks.numbers["kl"], 9).tolist(),
        "tokenizer_mismatches": examples,
        "chat_mismatches": wrong,
        **answers,
    }
    (out / "samples.json").write_text(json.dumps(samples, allow_nan=False), encoding="utf-8")
    return metrics | found | tokenizer | {"chat_mismatch": conversations}


class _Blocks:
    """What each block shows, until one has logits that are not finite; `own` are the artifact's log-probabilities where
    decoding begins in the first."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[Any]] = {"kl": [], "top1_agreement": [], "loss": [], "source_loss": []}
        self.own: NDArray[np.float32] | None = None


def _compare_blocks(runner: Any, reference: Path, tokens: NDArray[np.int32], blocks: _Blocks) -> dict[str, Estimate]:
    """The metrics of FROM_LOGITS, and how many logits are not finite; fills `blocks`."""
    import numpy as np

    found, lost = blocks.numbers, 0
    for number, block in enumerate(track(tokens, "blocks")):
        logits, broken = _scored_logits(runner, block)
        expected = np.array(np.load(reference / "logprobs.npy", mmap_mode="r")[number])  # one block in memory
        if logits.shape != expected.shape:
            raise ValueError(
                f"the artifact's vocabulary has {logits.shape[1]} tokens, the source's {expected.shape[1]}"
            )
        lost += broken
        if lost:
            continue  # what follows cannot be rescued, but the count should be complete
        logprobs, targets = log_softmax(logits), block[-len(logits) :]
        if number == 0:
            blocks.own = logprobs[: generation.DECODED + 1].copy()
        found["kl"].append(divergence(expected, logprobs))
        found["top1_agreement"].append(float((expected.argmax(-1) == logprobs.argmax(-1)).mean()))
        found["loss"].append(loss(logprobs, targets))
        found["source_loss"].append(loss(expected, targets))
    counted = statistics.exact(lost, len(tokens), METRICS["nonfinite_logits"].unit)
    return {**_accuracy_metrics(found, len(tokens)), "nonfinite_logits": counted}


def _accuracy_metrics(found: Mapping[str, Sequence[Any]], blocks: int) -> dict[str, Estimate]:
    import numpy as np

    if len(found["kl"]) < blocks:
        return {name: statistics.unknown(blocks, METRICS[name].unit) for name in FROM_LOGITS}
    pooled, mean = np.stack(found["kl"]), statistics.mean
    perplexity, source_perplexity = (statistics.exponential(mean(found[name])) for name in ("loss", "source_loss"))
    statistic = {
        "kl_mean": mean(pooled.mean(axis=1)),
        "kl_p99": statistics.quantile(pooled, 0.99),
        "top1_agreement": mean(found["top1_agreement"]),
        "perplexity_ratio": statistics.quotient(perplexity, source_perplexity),
        "perplexity": perplexity,
        "source_perplexity": source_perplexity,
    }
    metrics = {name: statistics.bootstrap(of, blocks, METRICS[name].unit) for name, of in statistic.items()}
    return metrics | {"kl_max": statistics.exact(pooled.max(), pooled.size, METRICS["kl_max"].unit)}


def requests(reference: Path, options: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """`count` prompts that begin at different places of the pool, so that no prefix cache can answer for one."""
    import numpy as np

    pool = np.load(reference / "pool.npy")
    length = int(options["prompt_tokens"])
    if len(pool) < length + count:
        raise ValueError(
            f"the evaluation data leaves {len(pool)} tokens for prompts, and {count} different ones of {length} take "
            f"{length + count}: give more text, or lower measure.rounds or measure.prompt_tokens"
        )
    starts = [number * (len(pool) - length) // count for number in range(count)]
    return [
        {"prompt": pool[start : start + length].tolist(), "decode": int(options["decode_tokens"])} for start in starts
    ]


def sample(runner: Any, request: Mapping[str, Any]) -> dict[str, float]:
    """Seconds to the first token, per token of the prompt, and per token decoded after it, also as CPU time.

    A token that was answered is needed as a plain integer for the next step, so no step can be put off or left out.
    """
    prompt, count = list(request["prompt"]), int(request["decode"])
    started = perf_counter()
    token = runner.prefill(prompt)
    answered, used = perf_counter(), process_time()
    for _ in range(count):
        token = runner.decode(token)
    ended, used = perf_counter(), process_time() - used
    first = answered - started
    return {
        "first": first,
        "per_prompt_token": first / len(prompt),
        "per_token": (ended - answered) / count,
        "per_token_cpu": used / count,
    }


def speed(
    artifact: Sequence[Mapping[str, float]], source: Sequence[Mapping[str, float]], error: float
) -> dict[str, Estimate]:
    """Medians over rounds of both sides, and of the ratios within a round, in which a slower machine cancels out."""

    def time(side: Sequence[Mapping[str, float]], name: str, unit: str = "", factor: float = 1.0) -> Estimate:
        return intervals.quantile([seconds[name] for seconds in side], 0.5, error, unit, factor)

    def ratio(name: str) -> Estimate:
        return intervals.ratio([seconds[name] for seconds in source], [seconds[name] for seconds in artifact], error)

    return {
        "ttft_ms": time(artifact, "first", "ms", 1000),
        "source_ttft_ms": time(source, "first", "ms", 1000),
        "prefill_tokens_per_s": intervals.inverse(time(artifact, "per_prompt_token"), "tokens/s"),
        "prefill_ratio": ratio("first"),
        "decode_tokens_per_s": intervals.inverse(time(artifact, "per_token"), "tokens/s"),
        "source_decode_tokens_per_s": intervals.inverse(time(source, "per_token"), "tokens/s"),
        "decode_ratio": ratio("per_token"),
        "decode_cpu_ratio": ratio("per_token_cpu"),
    }
