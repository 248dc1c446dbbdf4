"""What a language model does step by step: greedy answers, a long text, the same question twice. It judges nothing.

Logits of a whole text at once, which the divergence is taken from, say nothing of the key-value cache, of positions in
decoding, of stop tokens, or of what is left of one request when the next one comes. Here every prompt runs as a request
does: `prefill`, then `decode` one token at a time. Four looks, each small, because a token decoded costs as much as ten
in a prompt:

    steps      the first window: its first half as a prompt, then its own tokens one by one, against the artifact's own
               one-shot distributions at the same places
    answers    greedy answers of up to ANSWER_TOKENS to prompts that the source answered too: fixed questions in the
               source's chat template, and text of the evaluation to be continued
    long       a long text as a prompt, then its own tokens one by one, against the source that did the same
    again      what was asked first is asked again after all that: one-shot, and step by step

A look that fails with an error leaves its metrics null, which no gate passes; the job goes on with the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hallmark import looks, statistics
from hallmark.distributions import divergence, log_softmax, nonfinite
from hallmark.progress import track
from hallmark.statistics import Estimate
from hallmark.tasks import Metric, Option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

OPTIONS: dict[str, Option] = {
    "prompts": Option(6, "prompts answered greedily: short questions, every sixth a text to go on with", least=4),
    "long_tokens": Option(512, "tokens of the long text, less than the source has positions", least=32),
}
METRICS = {
    "decode_kl_mean": Metric(
        "accuracy",
        "nat",
        "lower",
        "mean divergence of decoding token by token from the artifact's own one-shot logits",
        grows=False,
    ),
    "long_kl_mean": Metric(
        "accuracy", "nat", "lower", "mean divergence from the source while decoding after a long text", grows=False
    ),
    "state_leak": Metric(
        "accuracy", "", "lower", "largest change of a logit when the first input is asked again at the end"
    ),
    "nonfinite_steps": Metric(
        "accuracy", "steps", "lower", "greedy answers cut short by a step with NaN or infinite logits"
    ),
    "degenerate_outputs": Metric(
        "accuracy",
        "",
        "lower",
        "share of greedy answers that go round in circles or are empty where the source's do not",
    ),
    "endless_outputs": Metric(
        "accuracy", "", "lower", "share of greedy answers that do not end where the source's do, after 64 tokens"
    ),
    "output_length_change": Metric(
        "accuracy", "", "lower", "change of the greedy answers' total length against the source's"
    ),
}
QUESTIONS = (  # with answers of a few words, which cost little and end
    "How many days are there in a week?",
    "What is the opposite of hot?",
    "Who wrote Romeo and Juliet?",
    "What colour is the sky?",
    "What is the capital of Italy?",
    "What is two plus two?",
    "Which planet is the largest?",
    "What language is spoken in Brazil?",
    "What is the boiling point of water?",
    "Name three colours.",
)
TEXT_EVERY = 6  # prompts
ANSWER_TOKENS = 64
CONTINUED = 32  # tokens of a text to go on with
DECODED = 16  # tokens decoded one by one in the looks `steps` and `long`
AGAIN = 4  # distributions compared when the first prompt is answered again
GOLDEN = (5**0.5 - 1) / 2  # multiples of it spread over 0 to 1 however many there are, so more hold the fewer
GRAM = 4  # tokens; an answer in which less than half of such runs differ is degenerate
FILE, LONG, LONG_LOGPROBS = "answers.json", "long.npy", "long_logprobs.npy"


def prompts(runner: Any, pool: NDArray[np.int32], count: int) -> list[list[int]]:
    """Token ids of `count` different prompts: questions, and every sixth and all beyond them a text from the pool."""
    made: list[list[int]] = []
    for number in range(count):
        question = number - number // TEXT_EVERY
        if number % TEXT_EVERY < TEXT_EVERY - 1 and question < len(QUESTIONS):
            made.append(runner.chat_prompt(QUESTIONS[question]))
        else:
            start = int(number * GOLDEN % 1 * (len(pool) - CONTINUED))
            made.append(pool[start : start + CONTINUED].tolist())
    return made


class Answer:
    """A greedy answer: its tokens, whether a stop token ended it, the first AGAIN distributions, what is not finite."""

    def __init__(self, runner: Any, prompt: Sequence[int], most: int = ANSWER_TOKENS) -> None:
        self.tokens: list[int] = []
        self.first: list[Floats] = []
        self.nonfinite, self.ended = 0, False
        token = runner.prefill(prompt)
        while True:
            scores = runner.scores()
            self.nonfinite = nonfinite(scores)
            if len(self.first) < AGAIN:
                self.first.append(scores)
            self.ended = token in runner.stops
            if self.nonfinite or self.ended:
                return
            self.tokens.append(token)
            if len(self.tokens) == most:
                return
            token = runner.decode(token)


def is_degenerate(tokens: Sequence[int]) -> bool:
    """Whether an answer is empty or goes round in circles: of its runs of four tokens less than half are different.

    The share of repeated runs is `rep-n` of S. Welleck et al., Neural Text Generation with Unlikelihood Training, 2020.
    """
    grams = [tuple(tokens[start : start + GRAM]) for start in range(len(tokens) - GRAM + 1)]
    return not tokens or 2 * len(set(grams)) < len(grams)


def forced(runner: Any, prompt: Sequence[int], following: Sequence[int]) -> Floats:
    """Logits (1 + len(following), vocabulary) after the prompt and after each following token, decoded one by one."""
    import numpy as np

    runner.prefill(prompt)
    rows = [runner.scores()]
    for token in following:
        runner.decode(token)
        rows.append(runner.scores())
    return np.stack(rows)


def ask_source(
    runner: Any, tokens: NDArray[np.int32], pool: NDArray[np.int32], out: Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Write what the source answers into the folder `out`; returns notes. Raises ValueError when it is not finite.

    answers.json       [{"prompt": ids, "answer": ids, "ended": by a stop token}]
    long.npy           int32 (tokens,): the long text, from the pool
    long_logprobs.npy  float32 (DECODED + 1, vocabulary): log-probabilities after its last tokens
    """
    import numpy as np

    answers: list[dict[str, Any]] = []
    for prompt in track(prompts(runner, pool, int(options["prompts"]) * int(options.get("more", 1))), "answers"):
        answer = Answer(runner, prompt)
        if answer.nonfinite:
            raise ValueError(f"the source answers prompt {len(answers)} with NaN or infinite logits")
        answers.append({"prompt": prompt, "answer": answer.tokens, "ended": answer.ended})
    (out / FILE).write_text(json.dumps(answers), encoding="utf-8")
    length = min(int(options["long_tokens"]), runner.positions - 1)  # a cache that is filled to the end may be refused
    long = np.concatenate([pool, tokens.ravel()])[:length].astype(np.int32)
    logits = forced(runner, *_split(long))
    if nonfinite(logits):
        raise ValueError(f"the source answers a text of {len(long)} tokens with NaN or infinite logits")
    np.save(out / LONG, long)
    np.save(out / LONG_LOGPROBS, log_softmax(logits))
    degenerate = sum(is_degenerate(answer["answer"]) for answer in answers)
    return {"answer_tokens": [len(a["answer"]) for a in answers], "degenerate": degenerate, "long_tokens": len(long)}


def _split(long: NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """The long text as a prompt and the DECODED tokens after it."""
    ids = long.tolist()
    return ids[:-DECODED], ids[-DECODED:]


class Looks:
    """The looks at one artifact: `before` it has answered anything, `after` it has answered all windows at once.

    The order spares a runtime that has one model for whole texts and another for steps from changing to and fro.
    """

    def __init__(self, runner: Any, reference: Path) -> None:
        self._runner, self._reference = runner, reference
        self._asked = json.loads((reference / FILE).read_text(encoding="utf-8"))
        self._one_shot: list[Floats] = []
        self._answered: list[Answer] = []

    def before(self) -> None:
        """Ask for the first prompt's logits, which are asked for again at the end."""
        self._attempt(self._ask_first, "state_leak")

    def after(
        self, prompt: NDArray[np.int32], following: NDArray[np.int32], logprobs: Floats | None
    ) -> tuple[dict[str, Estimate], dict[str, Any]]:
        """The metrics, and the answers for people. `prompt` and `following` are the halves of a window.

        `logprobs` are the artifact's own one-shot answers for the first of the tokens that follow. Without them (None:
        they were not finite) `decode_kl_mean` is null.
        """
        self._attempt(self._ask_first, "state_leak")
        found = self._attempt(lambda: self._steps(prompt, following, logprobs), "decode_kl_mean")
        found |= self._attempt(
            self._answers, "nonfinite_steps", "degenerate_outputs", "endless_outputs", "output_length_change"
        )
        found |= self._attempt(self._long, "long_kl_mean")
        found |= self._attempt(self._again, "state_leak")
        return found, {"answers": [answer.tokens for answer in self._answered]}

    def _attempt(self, look: Callable[[], dict[str, Estimate]], *names: str) -> dict[str, Estimate]:
        return looks.attempt({name: METRICS[name] for name in names}, look)

    def _ask_first(self) -> dict[str, Estimate]:
        import numpy as np

        self._one_shot.append(np.asarray(self._runner.logits(self._asked[0]["prompt"]), np.float32))
        return {}

    def _steps(
        self, prompt: NDArray[np.int32], following: NDArray[np.int32], logprobs: Floats | None
    ) -> dict[str, Estimate]:
        if logprobs is None:
            return {"decode_kl_mean": statistics.unknown(0, METRICS["decode_kl_mean"].unit)}
        rows = forced(self._runner, prompt.tolist(), following[: len(logprobs) - 1].tolist())
        return {"decode_kl_mean": _mean_divergence(logprobs, rows)}

    def _answers(self) -> dict[str, Estimate]:
        self._answered = [Answer(self._runner, asked["prompt"]) for asked in track(self._asked, "answers")]
        pairs = list(zip(self._answered, self._asked, strict=True))
        circles = [is_degenerate(own.tokens) and not is_degenerate(asked["answer"]) for own, asked in pairs]
        endless = [asked["ended"] and not own.ended for own, asked in pairs]
        lengths = [len(own.tokens) for own in self._answered]
        ratio = statistics.quotient(
            statistics.mean(lengths), statistics.mean([len(asked["answer"]) for asked in self._asked])
        )
        return {
            "nonfinite_steps": statistics.exact(sum(own.nonfinite > 0 for own, _ in pairs), sum(lengths), "steps"),
            "degenerate_outputs": _share(circles),
            "endless_outputs": _share(endless),
            "output_length_change": statistics.bootstrap(lambda weights: abs(ratio(weights) - 1), len(pairs)),
        }

    def _long(self) -> dict[str, Estimate]:
        import numpy as np

        rows = forced(self._runner, *_split(np.load(self._reference / LONG)))
        return {"long_kl_mean": _mean_divergence(np.load(self._reference / LONG_LOGPROBS), rows)}

    def _again(self) -> dict[str, Estimate]:
        import numpy as np

        before, after = self._one_shot
        steps = Answer(self._runner, self._asked[0]["prompt"], most=AGAIN).first
        compared = [(before, after), *zip(self._answered[0].first, steps, strict=False)]
        change = np.max([np.abs(one - other).max() for one, other in compared])  # NaN if one is
        return {"state_leak": statistics.exact(float(change), sum(one.size for one, _ in compared))}


def _share(found: Sequence[bool]) -> Estimate:
    """The share that is true. No interval: it guards against a collapse, not against a single answer that changes."""
    return statistics.exact(sum(found) / len(found), len(found))


def _mean_divergence(expected: Floats, logits: Floats) -> Estimate:
    """Of log-probabilities and logits of the same places in a text."""
    if nonfinite(logits):
        return statistics.unknown(len(logits), "nat")
    found = divergence(expected, log_softmax(logits))
    return statistics.bootstrap(statistics.mean(found), len(found), "nat")
