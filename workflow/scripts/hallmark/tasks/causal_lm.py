"""Language models: how far an artifact's next-token distributions are from its source's, and how fast it is.

Accuracy compares log-probabilities on one fixed token set, made with the source's tokenizer and kept with the
source's answers. It does not generate text and knows no benchmark questions. Speed is what one request at a time
sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hallmark import statistics, tokenizer_sample
from hallmark.progress import track
from hallmark.pytorch import CausalLM
from hallmark.speed import COMMON_METRICS, COMMON_OPTIONS
from hallmark.statistics import Estimate
from hallmark.tasks import INSPECTED, Metric, Option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "causal-lm"
# The modules that decide the numbers of this task's reference and accuracy; speed adds hallmark.speed.
CODE = (
    "hallmark.tasks.causal_lm",
    "hallmark.statistics",
    "hallmark.tokenizer_sample",
    "hallmark.pytorch",
    "hallmark.worker",
)

REFERENCE_OPTIONS: dict[str, Option] = {
    "blocks": Option(32, "windows of text, each the beginning of another article; the units of the intervals"),
    "tokens": Option(256, "tokens of a window; the predictions of its second half are scored"),
    "strings": Option(200, "strings on which the tokenizers are compared"),
}
SPEED_OPTIONS: dict[str, Option] = {
    **COMMON_OPTIONS,
    "rounds": Option(10, "timed requests to each engine"),
    "warmup_rounds": Option(4, "at most so many requests before, less once the times settle"),
    "warmup_window": Option(2, "so many last times in a row must agree for the engines to count as settled"),
    "prompt_tokens": Option(128, "tokens of a prompt"),
    "decode_tokens": Option(10, "tokens decoded after each prompt"),
}
OPTIONS: dict[str, Option] = {**REFERENCE_OPTIONS, **SPEED_OPTIONS}
FIRST_ANSWER = {"prompt_tokens": 8, "decode_tokens": 1}  # options of the short request that ends an opening
FROM_LOGITS = ("kl_mean", "kl_p99", "kl_max", "top1_agreement", "perplexity_ratio", "perplexity", "source_perplexity")
POOL_TOKENS = 32_768  # tokens kept for the prompts of the speed measurement, which must all differ

METRICS = {
    "kl_mean": Metric("accuracy", "nat", "lower", "mean Kullback-Leibler divergence from source to artifact per token"),
    "kl_p99": Metric("accuracy", "nat", "lower", "99th percentile of the divergence over tokens"),
    "kl_max": Metric("accuracy", "nat", "lower", "largest divergence of a token; no interval, it is the worst seen"),
    "top1_agreement": Metric("accuracy", "", "higher", "share of tokens where both predict the same most likely token"),
    "perplexity_ratio": Metric("accuracy", "", "lower", "artifact's perplexity over the source's, on the same tokens"),
    "perplexity": Metric("accuracy", "", "lower", "artifact's perplexity on the token set"),
    "source_perplexity": Metric("accuracy", "", "lower", "source's perplexity on the token set"),
    "nonfinite_logits": Metric("accuracy", "logits", "lower", "logits that are NaN or infinite; the rest is null then"),
    "tokenizer_mismatch": tokenizer_sample.METRIC,
    "ttft_ms": Metric("speed", "ms", "lower", "time to the first token of a prompt of prompt_tokens, median"),
    "source_ttft_ms": Metric("speed", "ms", "lower", "the same of the source on PyTorch"),
    "prefill_tokens_per_s": Metric("speed", "tokens/s", "higher", "prompt tokens over time to the first token, median"),
    "prefill_ratio": Metric("speed", "", "higher", "how many times faster than the source to the first token"),
    "decode_tokens_per_s": Metric("speed", "tokens/s", "higher", "tokens decoded one by one per second, median"),
    "source_decode_tokens_per_s": Metric("speed", "tokens/s", "higher", "the same of the source on PyTorch"),
    "decode_ratio": Metric("speed", "", "higher", "how many times faster than the source at decoding"),
    **COMMON_METRICS,
    **INSPECTED,
}
# Those of `sample`'s times that are drawn one by one.
TIMES = {"first": "Time to the first token", "per_token": "Time per decoded token"}


def reference_bytes(options: Mapping[str, Any], vocab: int) -> int:
    """Bytes of the reference's log-probabilities: scored tokens times vocabulary times 4. The rest is under 1 MB."""
    return int(options["blocks"]) * _scored(int(options["tokens"])) * vocab * 4


def _scored(tokens: int) -> int:
    """Predictions that are scored in a window: those of the tokens of its second half."""
    return tokens - tokens // 2


@contextmanager
def open_reference(source: Path, options: Mapping[str, Any]) -> Iterator[CausalLM]:
    """The source on PyTorch eager, with `options["threads"]` threads."""
    yield CausalLM(source, int(options["threads"]))


def reference(runner: Any, data: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the token set and what the source answers into the folder `out`.

    tokens.npy    int32 (blocks, tokens); window i is the beginning of an article, with the tokenizer's special tokens
    logprobs.npy  float32 (blocks, scored, vocabulary): log-probabilities of the token after each scored position
    pool.npy      int32 (n,): tokens of the rest of the articles, for prompts
    strings.json  strings with the source tokenizer's ids
    """
    import numpy as np

    texts = [json.loads(line) for line in (data / "text.jsonl").read_text(encoding="utf-8").splitlines() if line]
    tokens, pool, titles = _token_set(runner, texts, int(options["blocks"]), int(options["tokens"]))
    np.save(out / "tokens.npy", tokens)
    np.save(out / "pool.npy", pool)
    strings = tokenizer_sample.choose([text["text"] for text in texts], int(options["strings"]))
    tokenizer_sample.write(out, runner.encode, strings)
    losses = []
    with (out / "logprobs.npy").open("wb") as file:  # not a memory map, whose pages would count as this process's
        for number, block in enumerate(track(tokens, "blocks")):
            logits, lost = _scored_logits(runner, block)
            if lost:
                where = f"block {number} ({titles[number]})"
                raise ValueError(f"the source answers {where} with {lost} NaN or infinite logits")
            logprobs = _log_softmax(logits)
            if number == 0:
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(tokens), *logprobs.shape)}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(np.ascontiguousarray(logprobs, "<f4").data)
            losses.append(_loss(logprobs, block))
    return {"perplexity": float(np.exp(np.mean(losses))), "vocabulary": logprobs.shape[-1], "titles": titles}


def _token_set(
    runner: Any, texts: Sequence[Mapping[str, str]], blocks: int, tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], list[str]]:
    """The windows, the pool for prompts, and the windows' titles. Raises ValueError when the data holds too
    little."""
    import numpy as np

    windows: list[list[int]] = []
    rest: list[int] = []
    titles: list[str] = []
    for text in texts:
        ids = runner.encode(text["text"])
        if len(ids) > tokens and len(windows) < blocks:
            windows.append(ids[:tokens])
            titles.append(text.get("title", ""))
            ids = ids[tokens:]
        rest += ids
        if len(windows) == blocks and len(rest) >= POOL_TOKENS:
            break
    if len(windows) < blocks:
        have = f"{len(windows)} articles of more than {tokens} tokens"
        raise ValueError(f"the data holds {have}, but blocks is {blocks}: lower blocks or tokens, or give more text")
    return np.array(windows, np.int32), np.array(rest[:POOL_TOKENS], np.int32), titles


def _scored_logits(runner: Any, block: NDArray[np.int32]) -> tuple[NDArray[np.float32], int]:
    """The logits that predict the second half of a window, and how many of all the window's are not finite."""
    import numpy as np

    logits = np.asarray(runner.logits(block.tolist()), np.float32)
    if logits.shape[0] != len(block):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(block)} tokens")
    first = len(block) - _scored(len(block)) - 1
    return logits[first:-1], int(logits.size - np.isfinite(logits).sum())


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    logprobs: NDArray[np.float32] = shifted - np.log(total).astype(np.float32)
    return logprobs


def _loss(logprobs: NDArray[np.float32], block: NDArray[np.int32]) -> float:
    """Mean negative log-likelihood of the tokens of a window's second half."""
    import numpy as np

    targets = block[-len(logprobs) :].astype(np.int64)
    return -float(np.take_along_axis(logprobs, targets[:, None], axis=1).mean(dtype=np.float64))


def accuracy(runner: Any, reference: Path, data: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Estimate]:
    """Compare an artifact with the reference, one block at a time. Writes samples.json (numbers per block) into
    `out`.

    NaN or infinite logits are counted in `nonfinite_logits`; every metric that depends on logits is null then.
    Raises ValueError when the artifact's vocabulary has another size than the source's.
    """
    import numpy as np

    tokens = np.load(reference / "tokens.npy")
    divergences, agreements, losses, source_losses, lost = [], [], [], [], 0
    for number, block in enumerate(track(tokens, "blocks")):
        logits, nonfinite = _scored_logits(runner, block)
        expected = np.array(np.load(reference / "logprobs.npy", mmap_mode="r")[number])  # one block in memory
        if logits.shape != expected.shape:
            raise ValueError(
                f"the artifact's vocabulary has {logits.shape[1]} tokens, the source's {expected.shape[1]}"
            )
        lost += nonfinite
        if lost:
            continue  # what follows cannot be rescued, but the count should be complete
        logprobs = _log_softmax(logits)
        divergences.append(_divergence(expected, logprobs))
        agreements.append((expected.argmax(-1) == logprobs.argmax(-1)).mean())
        losses.append(_loss(logprobs, block))
        source_losses.append(_loss(expected, block))
    mismatch, examples = tokenizer_sample.compare(reference, runner.encode)
    samples = {
        "kl": np.round(divergences, 9).tolist(),
        "top1_agreement": [float(share) for share in agreements],
        "loss": losses,
        "source_loss": source_losses,
        "tokenizer_mismatches": examples,
    }
    (out / "samples.json").write_text(json.dumps(samples, allow_nan=False), encoding="utf-8")
    metrics = {
        "nonfinite_logits": statistics.exact(lost, len(tokens), METRICS["nonfinite_logits"].unit),
        "tokenizer_mismatch": mismatch,
    }
    return metrics | _accuracy_metrics(divergences, agreements, losses, source_losses, len(tokens))


def _divergence(source: NDArray[np.float32], artifact: NDArray[np.float32]) -> NDArray[np.float64]:
    """KL(source || artifact) of each row of log-probabilities, in nats."""
    import numpy as np

    divergence: NDArray[np.float64] = (np.exp(source) * (source - artifact)).sum(axis=-1, dtype=np.float64)
    return divergence


def _accuracy_metrics(
    divergences: Sequence[NDArray[np.float64]],
    agreements: Sequence[float],
    losses: Sequence[float],
    source_losses: Sequence[float],
    blocks: int,
) -> dict[str, Estimate]:
    import numpy as np

    if len(divergences) < blocks:
        return {name: statistics.unknown(blocks, METRICS[name].unit) for name in FROM_LOGITS}
    pooled, mean = np.stack(divergences), statistics.mean
    perplexity, source_perplexity = (statistics.exponential(mean(values)) for values in (losses, source_losses))
    found = {
        "kl_mean": mean(pooled.mean(axis=1)),
        "kl_p99": statistics.quantile(pooled, 0.99),
        "top1_agreement": mean(agreements),
        "perplexity_ratio": statistics.quotient(perplexity, source_perplexity),
        "perplexity": perplexity,
        "source_perplexity": source_perplexity,
    }
    metrics = {name: statistics.bootstrap(of, blocks, METRICS[name].unit) for name, of in found.items()}
    return metrics | {"kl_max": statistics.exact(pooled.max(), pooled.size, METRICS["kl_max"].unit)}


def requests(reference: Path, options: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """`count` prompts that begin at different places of the pool, so that no prefix cache can answer for one."""
    import numpy as np

    pool = np.load(reference / "pool.npy")
    length = int(options["prompt_tokens"])
    if len(pool) < length + count:
        raise ValueError(f"{len(pool)} tokens in {reference / 'pool.npy'}: too few for {count} prompts of {length}")
    starts = [number * (len(pool) - length) // count for number in range(count)]
    return [
        {"prompt": pool[start : start + length].tolist(), "decode": int(options["decode_tokens"])} for start in starts
    ]


def sample(runner: Any, request: Mapping[str, Any]) -> dict[str, float]:
    """Seconds to the first token, per token of the prompt, and per token decoded after it.

    A token that was answered is needed as a plain integer for the next step, so no step can be put off or left out.
    """
    prompt, count = list(request["prompt"]), int(request["decode"])
    started = perf_counter()
    token = runner.prefill(prompt)
    answered = perf_counter()
    for _ in range(count):
        token = runner.decode(token)
    ended = perf_counter()
    first = answered - started
    return {"first": first, "per_prompt_token": first / len(prompt), "per_token": (ended - answered) / count}


def speed(artifact: Sequence[Mapping[str, float]], source: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    """Medians over rounds, of both sides and of the ratios within a round, in which a slower machine cancels out."""

    def times(side: Sequence[Mapping[str, float]], name: str, factor: float = 1.0) -> list[float]:
        return [factor * seconds[name] for seconds in side]

    median, inverse = statistics.median, statistics.inverse
    found = {
        "ttft_ms": median(times(artifact, "first", 1000)),
        "source_ttft_ms": median(times(source, "first", 1000)),
        "prefill_tokens_per_s": inverse(median(times(artifact, "per_prompt_token"))),
        "prefill_ratio": statistics.median_ratio(times(source, "first"), times(artifact, "first")),
        "decode_tokens_per_s": inverse(median(times(artifact, "per_token"))),
        "source_decode_tokens_per_s": inverse(median(times(source, "per_token"))),
        "decode_ratio": statistics.median_ratio(times(source, "per_token"), times(artifact, "per_token")),
    }
    units = {name: METRICS[name].unit for name in found}
    return {name: statistics.bootstrap(of, len(artifact), units[name], in_order=True) for name, of in found.items()}
