"""Sentence encoders: how close an artifact's vectors are to its source's, how it ranks pairs, and its latency.

Accuracy embeds the evaluation's texts one by one, as single requests do: where activations are quantised at run time,
a batch changes the answer. Length, batch and state are looked at in `hallmark.invariance`. It does not train, search or
cluster. Prompts before the texts are not used on either side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from hallmark import intervals, invariance, loadgen_results, statistics, tokenizer_sample
from hallmark.invariance import cosine
from hallmark.looks import attempt
from hallmark.progress import track
from hallmark.pytorch import Encoder
from hallmark.speed import COMMON_METRICS, COMMON_OPTIONS, FIRST_LOOK
from hallmark.statistics import Estimate
from hallmark.tasks import INSPECTED, Metric, Option, timed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "sentence-similarity"
# The modules that decide the numbers of this task's reference and accuracy; speed adds hallmark.speed.
CODE = (
    "hallmark.accuracy_jobs",
    "hallmark.tasks.sentence_similarity",
    "hallmark.invariance",
    "hallmark.looks",
    "hallmark.statistics",
    "hallmark.tokenizer_sample",
    "hallmark.tokenizer_corpus",
    "hallmark.tokenizer_difference",
    "hallmark.chat",
    "hallmark.pytorch",
    "hallmark.sentence_modules",
    "hallmark.worker",
)

REFERENCE_OPTIONS: dict[str, Option] = {
    "strings": Option(2000, "strings on which the tokenizers are compared"),
}
SPEED_OPTIONS: dict[str, Option] = {
    **COMMON_OPTIONS,
    "rounds": Option(800, "at most so many timed requests to each engine", least=FIRST_LOOK),
    "warmup_rounds": Option(40, "at most so many requests before, less once the engines settle"),
    "warmup_window": Option(5, "so many last requests must bring no gain for the engines to count as settled"),
    "text_tokens": Option(128, "a request is a text of about so many tokens"),
}
MORE = False  # all the pairs that there are were measured the first time
OPTIONS: dict[str, Option] = {**REFERENCE_OPTIONS, **SPEED_OPTIONS}
FIRST_ANSWER = {"text_tokens": 8}  # options of the short request that ends an opening
FROM_VECTORS = ("cosine_mean", "cosine_min", "spearman", "source_spearman", "spearman_drop")
POOL_WORDS = 4096  # words kept for the texts of the speed measurement, which must all differ

METRICS = {
    "cosine_mean": Metric(
        "accuracy", "", "higher", "cosine of artifact's and source's vectors, mean over texts, then over sets"
    ),
    "cosine_min": Metric("accuracy", "", "higher", "smallest cosine of a text; no interval, it is the worst seen"),
    "spearman": Metric("accuracy", "", "higher", "rank correlation with people's ratings, mean over sets"),
    "source_spearman": Metric("accuracy", "", "higher", "the same of the source"),
    "spearman_drop": Metric(
        "accuracy", "", "lower", "source's rank correlation less the artifact's, on the same pairs"
    ),
    "nonfinite_values": Metric(
        "accuracy", "values", "lower", "vector entries that are NaN or infinite; the rest is null then"
    ),
    **invariance.METRICS,
    **tokenizer_sample.METRICS,
    **{
        f"{side}latency_p{share}_ms": timed("ms", "lower", f"single request, {share}th percentile{of}")
        for side, of in (("", ""), ("source_", ", of the source on PyTorch"))
        for share in (50, 90, 99)
    },
    "latency_ratio": timed("", "higher", "how many times faster than the source"),
    "latency_cpu_ratio": timed("", "higher", "how many times less CPU time than the source", "cpu"),
    **COMMON_METRICS,
    **loadgen_results.METRICS,
    **INSPECTED,
}
# Those of `sample`'s times that are drawn one by one.
TIMES = {"latency": "Latency of a request"}


def reference_bytes(options: Mapping[str, Any], vocab: int) -> int:
    """Bytes of the stored reference: vectors of some thousand texts, whatever the vocabulary."""
    return 20_000_000


@contextmanager
def open_reference(source: Path, options: Mapping[str, Any]) -> Iterator[Encoder]:
    """The source on PyTorch eager, with `options["threads"]` threads; with `remote_code`, its own code may run."""
    yield Encoder(source, int(options["threads"]), bool(options.get("remote_code")))


def reference(runner: Any, data: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the evaluation's texts and what the source answers into the folder `out`, with what `invariance` asks it.

    pairs.json      {"texts": [...], "sets": [names], "pairs": [[first text, second text, set, people's score], ...]}
    vectors.npy     float32 (texts, width), unit length
    words.json      {"words": [...], "tokens": [tokens of each], "special": tokens that every text gets}
    strings.json    strings with the source tokenizer's ids
    """
    import numpy as np

    lines = (data / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = _number([json.loads(line) for line in lines if line])
    (out / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    vectors = _embed(runner, pairs["texts"])
    lost = _nonfinite(vectors)
    if lost:
        raise ValueError(f"the source answers with {lost} NaN or infinite values")
    np.save(out / "vectors.npy", vectors)
    words, added = _words(runner, pairs["texts"]), list(runner.special()["added"])
    (out / "words.json").write_text(json.dumps(words), encoding="utf-8")
    invariance.ask_source(runner, words, out)
    tokenizer_sample.write(out, runner, tokenizer_sample.choose(pairs["texts"], int(options["strings"]), added))
    spearman = float(_spearman(pairs, _cosines(vectors, pairs))(np.ones((1, len(pairs["pairs"]))))[0])
    return {"spearman": spearman, "pairs": len(pairs["pairs"]), "texts": len(pairs["texts"])}


def _number(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pairs with every text and set once, and numbers in their place."""
    if not rows:
        raise ValueError("the data holds no pairs")
    texts = {text: number for number, text in enumerate(dict.fromkeys(row[side] for row in rows for side in "ab"))}
    sets = {name: number for number, name in enumerate(dict.fromkeys(row["set"] for row in rows))}
    pairs = [[texts[row["a"]], texts[row["b"]], sets[row["set"]], float(row["score"])] for row in rows]
    return {"texts": list(texts), "sets": list(sets), "pairs": pairs}


def _embed(runner: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    import numpy as np

    vectors = [np.asarray(runner.embed([text]), np.float32) for text in track(texts, "texts")]
    if any(vector.shape != (1, vectors[0].shape[-1]) for vector in vectors):
        raise ValueError(f"vectors of shape {vectors[0].shape} for one text, must all be (1, width)")
    return np.concatenate(vectors)


def _nonfinite(vectors: NDArray[np.float32]) -> int:
    import numpy as np

    return int(vectors.size - np.isfinite(vectors).sum())


def _words(runner: Any, texts: Sequence[str]) -> dict[str, Any]:
    """Words of the longest texts, with how many tokens each adds, to make texts of a given length from."""
    words: list[str] = []
    for text in sorted(texts, key=len, reverse=True):
        words += text.split()
        if len(words) >= POOL_WORDS:
            break
    special = len(runner.encode(""))
    known = {word: max(1, len(runner.encode(word)) - special) for word in dict.fromkeys(words[:POOL_WORDS])}
    return {"words": words[:POOL_WORDS], "tokens": [known[word] for word in words[:POOL_WORDS]], "special": special}


def accuracy(runner: Any, reference: Path, data: Path, out: Path, options: Mapping[str, Any]) -> dict[str, Estimate]:
    """Compare an artifact with the reference, text by text. Writes samples.json (numbers per text and pair) into
    `out`.

    People's scores of different sets have different scales, so the rank correlation is taken within each set and
    averaged over the sets; the cosine is averaged in the same way. Intervals resample texts and pairs within each
    set. Pairs that share a text are not independent, which makes the interval of `spearman` too narrow;
    `spearman_drop` suffers less. NaN or infinite values are counted in `nonfinite_values`; every other number is null
    then, but for the tokenizer's. All are where the artifact's vectors have another width than the source's.
    """
    import numpy as np

    pairs = json.loads((reference / "pairs.json").read_text(encoding="utf-8"))
    looks = invariance.Looks(runner, reference)
    looks.before()
    samples: dict[str, Any] = {}

    def compare() -> dict[str, Estimate]:
        source, vectors = np.load(reference / "vectors.npy"), _embed(runner, pairs["texts"])
        if vectors.shape != source.shape:
            raise ValueError(f"vectors of width {vectors.shape[1]}, the source's have {source.shape[1]}")
        lost = _nonfinite(vectors)
        found = {"nonfinite_values": statistics.exact(lost, len(vectors), METRICS["nonfinite_values"].unit)}
        if lost:
            return found | {name: statistics.unknown(len(vectors), METRICS[name].unit) for name in FROM_VECTORS}
        compared, numbers = _compare(pairs, source, vectors)
        samples.update(numbers)
        return found | compared

    metrics = attempt({name: METRICS[name] for name in (*FROM_VECTORS, "nonfinite_values")}, compare)
    tokenizer, samples["tokenizer_mismatches"] = tokenizer_sample.compare(reference, runner)
    metrics |= looks.after() | tokenizer
    (out / "samples.json").write_text(json.dumps(samples, allow_nan=False), encoding="utf-8")
    return metrics


def _compare(
    pairs: Mapping[str, Any], source: NDArray[np.float32], vectors: NDArray[np.float32]
) -> tuple[dict[str, Estimate], dict[str, Any]]:
    import numpy as np

    closeness = cosine(source, vectors)
    owner = _set_of_texts(pairs)
    members = [np.flatnonzero(owner == number) for number in range(len(pairs["sets"]))]
    by_set = statistics.averaged([(texts, statistics.mean(closeness[texts])) for texts in members if len(texts)])
    rated = _cosines(vectors, pairs), _cosines(source, pairs)
    own, sources = _spearman(pairs, rated[0]), _spearman(pairs, rated[1])
    strata, count = [int(row[2]) for row in pairs["pairs"]], len(pairs["pairs"])
    metrics = {
        "cosine_mean": statistics.bootstrap(by_set, len(closeness), strata=owner.tolist()),
        "cosine_min": statistics.exact(closeness.min(), len(closeness)),
        "spearman": statistics.bootstrap(own, count, strata=strata),
        "source_spearman": statistics.bootstrap(sources, count, strata=strata),
        "spearman_drop": statistics.bootstrap(statistics.difference(sources, own), count, strata=strata),
    }
    samples = {
        "cosine": closeness.tolist(),
        "similarity": rated[0].tolist(),
        "source_similarity": rated[1].tolist(),
        "score": [row[3] for row in pairs["pairs"]],
        "set": [pairs["sets"][row[2]] for row in pairs["pairs"]],
    }
    return metrics, samples


def _cosines(vectors: NDArray[np.float32], pairs: Mapping[str, Any]) -> NDArray[np.float64]:
    """The cosine of each pair's two texts."""
    first, second = ([row[side] for row in pairs["pairs"]] for side in (0, 1))
    return cosine(vectors[first], vectors[second])


def _set_of_texts(pairs: Mapping[str, Any]) -> NDArray[np.int_]:
    """The set in which each text occurs first."""
    import numpy as np

    owner = np.zeros(len(pairs["texts"]), int)
    for first, second, number, _ in reversed(pairs["pairs"]):
        owner[[first, second]] = number
    return owner


def _spearman(pairs: Mapping[str, Any], similarity: NDArray[np.float64]) -> statistics.Statistic:
    """The rank correlation of similarity and people's score within each set, averaged over the sets."""
    import numpy as np

    score, sets = np.array([row[3] for row in pairs["pairs"]]), np.array([row[2] for row in pairs["pairs"]])
    members = [np.flatnonzero(sets == number) for number in range(len(pairs["sets"]))]
    return statistics.averaged([(rows, statistics.spearman(similarity[rows], score[rows])) for rows in members])


def requests(reference: Path, options: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """`count` texts of at most `text_tokens` tokens, each from another place in the evaluation's longest texts."""
    pool = json.loads((reference / "words.json").read_text(encoding="utf-8"))
    number, room = len(pool["words"]), int(options["text_tokens"]) - pool["special"]
    if number < count:
        raise ValueError(
            f"the evaluation data has {number} words, and {count} different texts take as many: give more pairs, or "
            "lower measure.rounds"
        )
    return [{"text": invariance.fill(pool, place * number // count, room)} for place in range(count)]


def together(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several requests as one batch."""
    return {"texts": [request["text"] for request in requests]}


def sample(runner: Any, request: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of one request with one text, or a batch of texts, also as CPU time: tokenizer, model, pooling."""
    started, used = perf_counter(), process_time()
    if "texts" in request:
        runner.embed_together(request["texts"])
    else:
        runner.embed([request["text"]])
    return {"latency": perf_counter() - started, "latency_cpu": process_time() - used}


def speed(
    artifact: Sequence[Mapping[str, float]], source: Sequence[Mapping[str, float]], error: float
) -> dict[str, Estimate]:
    """Percentiles of both sides, and ratios within a round, in which a slower machine cancels out."""

    def times(side: Sequence[Mapping[str, float]], name: str) -> list[float]:
        return [seconds[name] for seconds in side]

    found = {
        f"{prefix}latency_p{share}_ms": intervals.quantile(times(side, "latency"), share / 100, error, "ms", 1000)
        for prefix, side in (("", artifact), ("source_", source))
        for share in (50, 90, 99)
    }
    ratios = {"latency_ratio": "latency", "latency_cpu_ratio": "latency_cpu"}
    return found | {
        metric: intervals.ratio(times(source, name), times(artifact, name), error) for metric, name in ratios.items()
    }
