"""The tasks: what they store and compare, on runners small enough to work the numbers out by hand."""

import importlib
import json
import math
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hallmark import gates, sentence_modules, speed, statistics, tasks, tokenizer_sample
from hallmark.engine import Command

LM, PAIRS = tasks.get("causal-lm"), tasks.get("sentence-similarity")
VOCAB = 64
LM_OPTIONS = {**tasks.defaults(LM.OPTIONS), "blocks": 4, "tokens": 16, "strings": 120, "long_tokens": 64, "threads": 1}
PAIR_OPTIONS = {**tasks.defaults(PAIRS.OPTIONS), "strings": 110, "threads": 1}


class Language:
    """A language model that knows only the last token: a table of logits, with noise of a given size added."""

    stops, positions = frozenset(), 4096

    def __init__(self, noise=0.0, spoil=None, vocab=VOCAB):
        generator = np.random.default_rng(0)
        self.table = generator.normal(0, 2, (VOCAB, vocab)).astype(np.float32)
        self.table += noise * np.random.default_rng(1).normal(0, 1, (VOCAB, vocab)).astype(np.float32)
        self.spoil, self.calls = spoil, 0

    def encode(self, text, special=True):
        return [*[1] * special, *(2 + byte % (VOCAB - 2) for byte in text.encode())]

    def spans(self, text):
        return [(place, place + 1) for place, letter in enumerate(text) for _ in letter.encode()]

    def special(self):
        return {"added": {"<s>": 1}, "unknown": None}

    def chat(self):
        return "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", {"bos_token": "<s>"}

    def logits(self, ids):
        self.calls += 1
        found = self.table[ids].copy()
        if self.spoil and self.calls == 2:
            found[3, 5] = self.spoil
        return found

    def chat_prompt(self, text):
        return self.encode(text)

    def prefill(self, ids):
        return self._choose(ids[-1])

    def decode(self, token):
        return self._choose(token)

    def _choose(self, token):
        self.row = self.table[token]
        return int(self.row.argmax())

    def scores(self):
        return self.row


class Encoder:
    """An encoder whose vectors depend on the letters of a text, with noise of a given size added."""

    longest = 64

    def __init__(self, noise=0.0, spoil=None):
        self.noise, self.spoil = noise, spoil

    def encode(self, text, special=True):
        ids = [len(word) for word in text.split()]
        return [101, *ids, 102] if special else ids

    def spans(self, text):
        return []

    def special(self):
        return {"added": {"[CLS]": 101, "[SEP]": 102}, "unknown": 0}

    def embed(self, texts):
        rows = [np.bincount([ord(letter) % 8 for letter in text], minlength=8) + 0.1 for text in texts]
        vectors = np.array(rows, np.float32)
        for row, text in zip(vectors, texts, strict=True):
            row += self.noise * np.random.default_rng(len(text)).normal(0, 1, 8)
            if self.spoil and text == "beta":
                row[0] = self.spoil
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    embed_together = embed


def _articles(folder, count=6, length=400):
    generator = np.random.default_rng(5)
    letters = "abcdefghijklmnopqrstuvwxyz     "
    rows = [
        {"title": f"Article {number}", "text": "".join(generator.choice(list(letters), length))}
        for number in range(count)
    ]
    (folder / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def articles(tmp_path):
    (tmp_path / "data").mkdir()
    return _articles(tmp_path / "data")


@pytest.fixture
def pairs(tmp_path):
    (tmp_path / "data").mkdir()
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "a longer text about nothing", "zeta zeta", "eta theta iota"]
    generator = np.random.default_rng(6)
    rows = [
        {"a": a, "b": b, "score": float(generator.integers(10)), "set": "words" if len(a) < 6 else "texts"}
        for number, a in enumerate(words)
        for b in words[number + 1 :]
    ]
    (tmp_path / "data/pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "data"


def compare(task, source, artifact, data, options, folder):
    """The metrics of an artifact, and the folders of reference and measurement."""
    made, out = folder / "reference", folder / "out"
    made.mkdir()
    out.mkdir()
    task.reference(source, data, made, options)
    return task.accuracy(artifact, made, data, out, options), made, out


def values(metrics):
    return {name: estimate["value"] for name, estimate in metrics.items()}


def test_a_task_says_what_it_measures():
    for name in tasks.names():
        task = tasks.get(name)
        assert name == task.NAME
        assert all(
            metric.source in ("accuracy", "choices", "speed", "loadgen", "inspect") and metric.meaning
            for metric in task.METRICS.values()
        )
        assert set(task.REFERENCE_OPTIONS) | set(task.SPEED_OPTIONS) == set(task.OPTIONS)
        assert set(task.FIRST_ANSWER) <= set(task.OPTIONS)
        for module in task.CODE:
            importlib.import_module(module)


def test_tasks_import_nothing_heavy():
    code = "import sys, hallmark.tasks as t, hallmark.worker; [t.get(name) for name in t.names()]; print(*sys.modules)"
    env = {"PYTHONPATH": str(Path(tasks.__file__).parents[2])}
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert not {"numpy", "torch", "transformers", "pydantic", "snakemake"} & set(loaded.stdout.split())


# Language models


def test_the_source_against_itself_is_perfect(articles, tmp_path):
    metrics, _, _ = compare(LM, Language(), Language(), articles, LM_OPTIONS, tmp_path)
    found = values(metrics)
    assert (found["kl_mean"], found["kl_p99"], found["kl_max"]) == (0, 0, 0)
    assert (found["top1_agreement"], found["perplexity_ratio"]) == (1, 1)
    assert (found["nonfinite_logits"], found["tokenizer_mismatch"]) == (0, 0)
    accuracy = {name for name, metric in LM.METRICS.items() if metric.source == "accuracy"}
    assert set(metrics) == accuracy
    assert all(metrics[name]["unit"] == LM.METRICS[name].unit for name in metrics)


def test_divergence_and_perplexity_are_those_of_the_formulas(articles, tmp_path):
    source, artifact = Language(), Language(noise=0.5)
    metrics, made, out = compare(LM, source, artifact, articles, LM_OPTIONS, tmp_path)
    tokens = np.load(made / "tokens.npy")
    divergences, losses = [], []
    for block in tokens:
        for last, following in pairwise(block[7:]):
            p, q = (np.exp(model.table[last].astype(float)) for model in (source, artifact))
            p, q = p / p.sum(), q / q.sum()
            divergences.append((p * np.log(p / q)).sum())
            losses.append((np.log(p[following]), np.log(q[following])))
    found, (own, other) = values(metrics), np.array(losses).mean(0)
    assert found["kl_mean"] == pytest.approx(np.mean(divergences), rel=1e-4)
    assert found["kl_max"] == pytest.approx(np.max(divergences), rel=1e-4)
    assert found["source_perplexity"] == pytest.approx(math.exp(-own), rel=1e-4)
    assert found["perplexity_ratio"] == pytest.approx(math.exp(own - other), rel=1e-4)
    assert 0 < metrics["kl_mean"]["low"] < found["kl_mean"] < metrics["kl_mean"]["high"]
    samples = json.loads((out / "samples.json").read_text())
    assert np.shape(samples["kl"]) == (4, 8)
    assert np.mean(samples["kl"]) == pytest.approx(found["kl_mean"], rel=1e-4)


def test_windows_come_from_different_articles_and_prompts_from_elsewhere(articles, tmp_path):
    _, made, _ = compare(LM, Language(), Language(), articles, LM_OPTIONS, tmp_path)
    texts = [json.loads(line)["text"] for line in (articles / "text.jsonl").read_text().splitlines()]
    tokens, pool = np.load(made / "tokens.npy"), np.load(made / "pool.npy")
    assert [row.tolist() for row in tokens] == [Language().encode(text)[:16] for text in texts[:4]]
    assert pool[:8].tolist() == Language().encode(texts[0])[16:24]


def test_the_estimated_size_of_the_reference_is_the_real_one(articles, tmp_path):
    _, made, _ = compare(LM, Language(), Language(), articles, LM_OPTIONS, tmp_path)
    stored = np.load(made / "logprobs.npy", mmap_mode="r")
    assert stored.shape == (4, 8, VOCAB)
    long = np.load(made / "long_logprobs.npy")
    assert stored.nbytes + long.nbytes == LM.reference_bytes(LM_OPTIONS, VOCAB)
    assert np.exp(stored.astype(float)).sum(-1) == pytest.approx(1)


@pytest.mark.parametrize("spoil", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_numbers_never_pass(articles, tmp_path, spoil):
    metrics, _, out = compare(LM, Language(), Language(spoil=spoil), articles, LM_OPTIONS, tmp_path)
    found = values(metrics)
    assert found.pop("nonfinite_logits") == 1
    assert {found.pop(name) for name in (*tokenizer_sample.METRICS, "chat_mismatch")} == {0}
    null = {name for name, value in found.items() if value is None}
    assert null == {*LM.FROM_LOGITS, "decode_kl_mean"}
    json.dumps(metrics, allow_nan=False)
    json.loads((out / "samples.json").read_text())


def test_a_source_that_is_not_finite_is_refused(articles, tmp_path):
    with pytest.raises(ValueError, match=r"block 1 \(Article 1\) with 1 NaN"):
        LM.reference(Language(spoil=math.nan), articles, tmp_path, LM_OPTIONS)


def test_another_vocabulary_leaves_no_number_and_says_why(articles, tmp_path):
    metrics, *_ = compare(LM, Language(), Language(vocab=80), articles, LM_OPTIONS, tmp_path)
    for name in (*LM.FROM_LOGITS, "nonfinite_logits"):
        assert metrics[name]["value"] is None
        assert metrics[name]["why"] == "ValueError: the artifact's vocabulary has 80 tokens, the source's 64"


def test_what_the_machine_lacks_is_no_finding_of_an_artifact(articles, tmp_path):
    class Starved(Language):
        def logits(self, ids):
            raise MemoryError

    with pytest.raises(MemoryError):
        compare(LM, Language(), Starved(), articles, LM_OPTIONS, tmp_path)


def test_too_little_text_is_said(articles, tmp_path):
    with pytest.raises(ValueError, match="holds 6 articles of more than 16 tokens, but blocks is 7"):
        LM.reference(Language(), articles, tmp_path, {**LM_OPTIONS, "blocks": 7})


def test_no_two_prompts_begin_alike(articles, tmp_path):
    _, made, _ = compare(LM, Language(), Language(), articles, LM_OPTIONS, tmp_path)
    options = {**LM_OPTIONS, "prompt_tokens": 64, "decode_tokens": 3}
    asked = LM.requests(made, options, 50)
    assert len({tuple(request["prompt"][:32]) for request in asked}) == 50
    assert {len(request["prompt"]) for request in asked} == {64}
    with pytest.raises(
        ValueError, match=r"50 different ones of 9000 take 9050: give more text, or lower measure\.rounds"
    ):
        LM.requests(made, {**options, "prompt_tokens": 9000}, 50)


def test_a_sample_decodes_what_was_answered():
    asked = []

    class Recorder(Language):
        def prefill(self, ids):
            asked.append(list(ids))
            return super().prefill(ids)

        def decode(self, token):
            asked.append(token)
            return super().decode(token)

    model = Language()
    times = LM.sample(Recorder(), {"prompt": [5, 9], "decode": 2})
    first = model.prefill([5, 9])
    assert asked == [[5, 9], first, model.decode(first)]
    assert times["per_prompt_token"] == times["first"] / 2
    assert set(LM.TIMES) <= set(times)


def test_ratios_say_how_many_times_faster_the_artifact_is():
    noise = [1.0, 1.3, 1.0, 7.0, 1.1, 1.0]

    def side(first, token):
        names = {"first": first, "per_prompt_token": first / 100, "per_token": token, "per_token_cpu": 2 * token}
        return [{name: seconds * n for name, seconds in names.items()} for n in noise]

    found = LM.speed(side(0.1, 0.01), side(0.2, 0.05), 0.05)
    assert found["prefill_ratio"]["low"] == pytest.approx(2 / 1.01)
    assert found["prefill_ratio"]["high"] == pytest.approx(2 * 1.01)
    assert found["decode_cpu_ratio"]["value"] == pytest.approx(5)
    assert found["decode_ratio"]["value"] == pytest.approx(5)
    assert found["ttft_ms"]["value"] == pytest.approx(105)
    assert found["decode_tokens_per_s"]["value"] == pytest.approx(1 / 0.0105)
    assert {*found, *LM.COMMON_METRICS} == {name for name, metric in LM.METRICS.items() if metric.source == "speed"}


def test_a_divergence_across_its_limit_is_settled_by_more_text(tmp_path):
    (tmp_path / "data").mkdir()
    data, options = _articles(tmp_path / "data", count=60, length=120), {**LM_OPTIONS, "tokens": 32}
    limits = {"kl_mean": (gates.Limit(max=0.1), "*/*/*")}

    def judged(more):
        folder = tmp_path / str(more)
        folder.mkdir()
        metrics, made, _ = compare(LM, Language(), Language(noise=0.487), data, {**options, "more": more}, folder)
        measurement = {"artifact": "a", "metrics": metrics}
        verdict = gates.judge("m/f/v", "cpu", limits, [measurement], {}, "a", metrics=LM.METRICS)
        return verdict, len(np.load(made / "tokens.npy"))

    (first, blocks), (last, more_blocks) = judged(1), judged(4)
    assert (first["verdict"], first["short_of_samples"], blocks) == ("inconclusive", True, 4)
    assert (last["verdict"], last["short_of_samples"], more_blocks) == ("fail", False, 16)
    gate, settled = first["gates"][0], last["gates"][0]
    assert gate["low"] < gate["value"] < 0.1 < gate["high"]
    assert 0.1 < settled["low"] < settled["value"]


def test_more_text_is_taken_as_far_as_there_is_any(articles, tmp_path):
    LM.reference(Language(), articles, tmp_path, {**LM_OPTIONS, "more": 4})
    assert len(np.load(tmp_path / "tokens.npy")) == 6


# Sentence encoders


def test_the_source_encoder_against_itself_is_perfect(pairs, tmp_path):
    metrics, _, _ = compare(PAIRS, Encoder(), Encoder(), pairs, PAIR_OPTIONS, tmp_path)
    found = values(metrics)
    assert (found["cosine_mean"], found["cosine_min"]) == (pytest.approx(1), pytest.approx(1))
    assert found["spearman"] == found["source_spearman"]
    assert metrics["spearman_drop"]["low"] == metrics["spearman_drop"]["high"] == 0
    assert set(metrics) == {name for name, metric in PAIRS.METRICS.items() if metric.source == "accuracy"}


def test_correlations_are_taken_within_sets_and_averaged(pairs, tmp_path):
    artifact = Encoder(noise=0.3)
    metrics, _, out = compare(PAIRS, Encoder(), artifact, pairs, PAIR_OPTIONS, tmp_path)
    rows = [json.loads(line) for line in (pairs / "pairs.jsonl").read_text().splitlines()]
    by_set, cosines = {}, {}
    for row in rows:
        one, two = artifact.embed([row["a"]])[0], artifact.embed([row["b"]])[0]
        by_set.setdefault(row["set"], []).append((float(one @ two), row["score"]))
        for text in (row["a"], row["b"]):
            cosine = float(artifact.embed([text])[0] @ Encoder().embed([text])[0])
            if not any(text in texts for texts in cosines.values()):
                cosines.setdefault(row["set"], {})[text] = cosine
    rho = [statistics.spearman(*zip(*rated, strict=True))(np.ones((1, len(rated))))[0] for rated in by_set.values()]
    found = values(metrics)
    assert found["spearman"] == pytest.approx(np.mean(rho), abs=1e-6)
    assert found["spearman_drop"] == pytest.approx(found["source_spearman"] - found["spearman"])
    assert found["cosine_mean"] == pytest.approx(np.mean([np.mean(list(part.values())) for part in cosines.values()]))
    assert found["cosine_min"] == pytest.approx(min(min(part.values()) for part in cosines.values()))
    samples = json.loads((out / "samples.json").read_text())
    assert len(samples["similarity"]) == len(samples["set"]) == len(rows)


def test_vectors_that_are_not_numbers_never_pass(pairs, tmp_path):
    metrics, _, _ = compare(PAIRS, Encoder(), Encoder(spoil=math.nan), pairs, PAIR_OPTIONS, tmp_path)
    found = values(metrics)
    assert found.pop("nonfinite_values") == 8
    assert {found.pop(name) for name in tokenizer_sample.METRICS} == {0}
    null = {name for name, value in found.items() if value is None}
    assert null == {"cosine_mean", "cosine_min", "spearman", "source_spearman", "spearman_drop"}


def test_another_width_leaves_no_number_and_says_why(pairs, tmp_path):
    class Wide(Encoder):
        def embed(self, texts):
            return np.ones((len(texts), 9), np.float32)

    metrics, *_ = compare(PAIRS, Encoder(), Wide(), pairs, PAIR_OPTIONS, tmp_path)
    for name in (*PAIRS.FROM_VECTORS, "nonfinite_values"):
        assert metrics[name]["value"] is None
        assert metrics[name]["why"] == "ValueError: vectors of width 9, the source's have 8"


def test_texts_to_time_differ_and_have_the_length_asked_for(pairs, tmp_path):
    _, made, _ = compare(PAIRS, Encoder(), Encoder(), pairs, PAIR_OPTIONS, tmp_path)
    words = json.loads((made / "words.json").read_text())["words"]
    asked = [request["text"] for request in PAIRS.requests(made, {**PAIR_OPTIONS, "text_tokens": 6}, len(words))]
    assert {len(Encoder().encode(text)) for text in asked} == {6}
    assert [text.split()[0] for text in asked] == words
    with pytest.raises(ValueError, match=r"lower measure\.rounds"):
        PAIRS.requests(made, PAIR_OPTIONS, len(words) + 1)


def test_latencies_and_their_ratio():
    times = [0.010 + 0.0001 * number for number in range(100)]
    artifact = [{"latency": time, "latency_cpu": time} for time in times]
    source = [{"latency": 3 * time, "latency_cpu": 4 * time} for time in times]
    found = PAIRS.speed(artifact, source, 0.05)
    assert found["latency_cpu_ratio"]["value"] == pytest.approx(4)
    assert found["latency_ratio"]["value"] == pytest.approx(3)
    assert found["latency_p50_ms"]["value"] == pytest.approx(14.95)
    assert found["source_latency_p99_ms"]["value"] == pytest.approx(3 * 19.85)
    assert {*found, *PAIRS.COMMON_METRICS} == {
        name for name, metric in PAIRS.METRICS.items() if metric.source == "speed"
    }


def test_several_requests_become_one_batch():
    class Counting(Encoder):
        def embed_together(self, texts):
            batches.append(list(texts))
            return self.embed(texts)

    batches = []
    PAIRS.sample(Counting(), PAIRS.together([{"text": "a b"}, {"text": "c"}]))
    PAIRS.sample(Counting(), {"text": "d"})
    assert batches == [["a b", "c"]]


# The source on PyTorch


def _encoder_folder(folder, pooling, module="Pooling"):
    kinds = [("", "Transformer"), ("1_Pooling", module), ("2_Normalize", "Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 8, **pooling}))
    return folder


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_pooling_is_read_from_the_checkpoint(tmp_path, mode):
    names = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    config = {name: name == names[mode] for name in names.values()}
    assert sentence_modules.pooling(_encoder_folder(tmp_path, config)) == mode


def test_a_plain_transformer_is_pooled_by_mean_and_cut_to_its_positions(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 77}')
    assert (sentence_modules.pooling(tmp_path), sentence_modules.longest_input(tmp_path)) == ("mean", 77)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    assert sentence_modules.longest_input(tmp_path) == 40


@pytest.mark.parametrize(
    ("config", "tokenizer", "longest"),
    [
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, {"model_max_length": 512}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, {}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514}, {"model_max_length": 10**30}, 512),
        ({"model_type": "bert", "max_position_embeddings": 512}, {"model_max_length": 128}, 128),
        ({"model_type": "t5"}, {"model_max_length": 10**30}, 512),
    ],
)
def test_without_a_stated_limit_tokenizer_and_positions_cut_the_input(tmp_path, config, tokenizer, longest):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert sentence_modules.longest_input(tmp_path) == longest


def test_pooling_that_is_not_supported_is_refused(tmp_path):
    weighted = {"pooling_mode_mean_tokens": False, "pooling_mode_weightedmean_tokens": True}
    with pytest.raises(ValueError, match="pooling_mode_weightedmean_tokens; one of pooling_mode_mean_tokens"):
        sentence_modules.pooling(_encoder_folder(tmp_path, weighted))


def test_other_modules_are_refused(tmp_path):
    with pytest.raises(ValueError, match="module Dense is not supported"):
        sentence_modules.pooling(_encoder_folder(tmp_path, {}, module="Dense"))


@pytest.fixture
def ask(toolchain, tmp_path):
    """A function that gives a request to the worker in the toolchain `torch`; with `start`, only its command."""

    def run(request, start=False):
        asked, answered = tmp_path / f"{request['action']}.json", tmp_path / "response.json"
        asked.write_text(json.dumps(request))
        env = {"PYTHONPATH": str(Path(tasks.__file__).parents[2]), "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}
        command = Command([str(toolchain("torch")), "-m", "hallmark.worker", str(asked), str(answered)], env)
        if start:
            return command
        subprocess.run(command.argv, env=command.env, check=True, stdout=sys.stderr)
        return json.loads(answered.read_text())

    return run


@pytest.mark.slow
def test_a_real_source_against_itself(ask, tiny_llama, articles, tmp_path):
    options = {
        **LM_OPTIONS,
        "tokens": 64,
        "rounds": 12,
        "least_seconds": 1,
        "loads": 2,
        "prompt_tokens": 32,
        "decode_tokens": 4,
    }
    (tmp_path / "reference").mkdir()
    (tmp_path / "out").mkdir()
    common = {"task": "causal-lm", "source": str(tiny_llama), "data": str(articles), "options": options}
    made = ask({**common, "action": "reference", "out": str(tmp_path / "reference")})
    assert made["versions"]["torch"].startswith("2.")
    assert 1 < made["result"]["perplexity"] < 5000
    reference = {"reference": str(tmp_path / "reference")}
    found = values(ask({**common, **reference, "action": "accuracy", "out": str(tmp_path / "out")})["result"])
    assert (found["kl_max"], found["top1_agreement"], found["tokenizer_mismatch"]) == (0, 1, 0)
    serve = ask({**common, "action": "serve"}, start=True)
    metrics, _, _ = speed.measure(serve, serve, "causal-lm", tmp_path / "reference", options, tmp_path / "log", {})
    assert 0.2 < metrics["prefill_ratio"]["value"] < 5
    assert 0.2 < metrics["load_ratio"]["value"] < 5
    assert 0.9 < metrics["memory_ratio"]["value"] < 1.1


@pytest.mark.slow
def test_a_source_that_lacks_tensors_is_refused(ask, tiny_llama, articles, tmp_path):
    shutil.copytree(tiny_llama, tmp_path / "source")
    config = json.loads((tmp_path / "source/config.json").read_text())
    (tmp_path / "source/config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    common = {"task": "causal-lm", "source": str(tmp_path / "source"), "data": str(articles), "options": LM_OPTIONS}
    with pytest.raises(subprocess.CalledProcessError):
        ask({**common, "action": "reference", "out": str(tmp_path)})
    assert not (tmp_path / "response.json").exists()
