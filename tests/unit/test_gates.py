"""Gate lookup and verdicts."""

import json
import math

import pytest
from pydantic import ValidationError

from hallmark.gates import Limit, judge, patterns, policy_digest, resolve
from hallmark.policy_checks import Known, check_policy
from hallmark.tasks import Metric

SUBJECT = "smollm2/gguf/q4_k_m"
ARTIFACT, OTHER = "a" * 64, "b" * 64
METRICS = {
    "kl_mean": Metric("accuracy", "nat", "lower", "mean KL divergence"),
    "decode_ratio": Metric("speed", "", "higher", "decode speed over the source's"),
    "prefill_ratio": Metric("speed", "", "higher", "prefill speed over the source's"),
    "load_ratio": Metric("speed", "", "higher", "openings over the source's", "clock", grows=False),
    "bytes": Metric("inspect", "B", "lower", "size of the files"),
    "release_decode_ratio": Metric("release", "", "higher", "decode speed over the last release's", "clock"),
}
KNOWN = Known(
    metrics={"causal-lm": METRICS, "sentence-similarity": {"cosine_mean": None}},
    models={"smollm2": "causal-lm", "minilm": "sentence-similarity"},
    formats={"gguf": ["f16", "q4_k_m"], "onnx": ["int8"]},
)


def estimate(value, low=None, high=None, unit=""):
    return {"value": value, "low": value if low is None else low, "high": value if high is None else high, "unit": unit}


def verdict(limits, accuracy=None, speed=None, inspected=None, measured_on=ARTIFACT, release=None, **more):
    policy = {"causal-lm": {"*/*/*": {name: Limit(**limit) for name, limit in limits.items()}}}
    measurements = [
        {"kind": "accuracy", "artifact": measured_on, "metrics": accuracy or {}},
        {"kind": "speed", "artifact": measured_on, "metrics": speed or {}},
    ]
    if release is not None:
        measurements.append({"kind": "release", "artifact": measured_on, "metrics": {}, "conditions": {}, **release})
    inspection = {"artifact": measured_on, "metrics": inspected or {}}
    resolved = resolve(policy, "causal-lm", SUBJECT)
    return judge(SUBJECT, "cpu-llamacpp", resolved, measurements, inspection, ARTIFACT, metrics=METRICS, **more)


def kl(*numbers, limit=0.1):
    return verdict({"kl_mean": {"max": limit}}, accuracy={"kl_mean": estimate(*numbers, unit="nat")})


def test_a_number_that_an_error_kept_from_being_measured_fails_with_that_error():
    unmeasured = {**estimate(None), "why": "ValueError: the artifact's vocabulary has 80 tokens, the source's 64"}
    found = verdict({"kl_mean": {"max": 0.1}}, accuracy={"kl_mean": unmeasured})
    assert found["verdict"] == "fail"
    assert "kl_mean could not be measured (ValueError: the artifact's vocabulary has 80 tokens" in found["why"]


@pytest.mark.parametrize("bad", [{}, {"max": 1, "min": 0}, {"max": "0.1"}, {"max": math.nan}, {"max": True}, {"mx": 1}])
def test_a_limit_is_exactly_one_finite_number(bad):
    with pytest.raises(ValidationError):
        Limit(**bad)


def test_lookup_goes_from_the_most_specific_pattern_to_the_default():
    assert patterns(SUBJECT) == [
        "smollm2/gguf/q4_k_m",
        "smollm2/gguf/*",
        "smollm2/*/q4_k_m",
        "*/gguf/q4_k_m",
        "smollm2/*/*",
        "*/gguf/*",
        "*/*/q4_k_m",
        "*/*/*",
    ]


def test_a_variant_made_from_another_is_meant_by_the_others_name_where_its_own_says_nothing():
    found = patterns("m/gguf/mine", "q8_0")
    assert found[:3] == ["m/gguf/mine", "m/gguf/q8_0", "m/gguf/*"]
    assert found[-3:] == ["*/*/mine", "*/*/q8_0", "*/*/*"]
    policy = {"lm": {"*/gguf/q8_0": {"kl_mean": Limit(max=0.01)}, "*/gguf/*": {"kl_mean": Limit(max=1.0)}}}
    limit, pattern = resolve(policy, "lm", "m/gguf/mine", "q8_0")["kl_mean"]
    assert (limit.max, pattern) == (0.01, "*/gguf/q8_0")


@pytest.mark.parametrize("kept", range(8))
def test_each_pattern_holds_when_those_before_it_are_absent(kept):
    tables = {
        pattern: {"kl_mean": Limit(max=place)} for place, pattern in enumerate(patterns(SUBJECT)) if place >= kept
    }
    limit, pattern = resolve({"causal-lm": dict(reversed(tables.items()))}, "causal-lm", SUBJECT)["kl_mean"]
    assert (limit.max, pattern) == (kept, patterns(SUBJECT)[kept])


def test_each_metric_is_looked_up_by_itself():
    policy = {
        "causal-lm": {
            "*/*/*": {"kl_mean": Limit(max=1), "bytes": Limit(max=5)},
            "smollm2/gguf/*": {"kl_mean": Limit(max=2)},
            "other/*/*": {"prefill_ratio": Limit(min=1)},
        }
    }
    resolved = resolve(policy, "causal-lm", SUBJECT)
    assert {name: pattern for name, (_, pattern) in resolved.items()} == {"bytes": "*/*/*", "kl_mean": "smollm2/gguf/*"}
    assert resolve(policy, "sentence-similarity", "minilm/gguf/f16") == {}


def test_policy_digest_ignores_order_and_notation_and_sees_every_limit():
    one = {"a": (Limit(max=1), "*/*/*"), "b": (Limit(min=2), "*/*/*")}
    same = {"b": (Limit(min=2.0), "*/*/*"), "a": (Limit(max=1.0), "*/*/*")}
    assert policy_digest(one) == policy_digest(same)
    different = [
        one | {"a": (Limit(max=1.5), "*/*/*")},
        one | {"a": (Limit(min=1), "*/*/*")},
        one | {"a": (Limit(max=1), "smollm2/*/*")},
        {"a": one["a"]},
    ]
    assert len({policy_digest(gates) for gates in [one, *different]}) == 5


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"causal-ml": {}},
            "gates: no task 'causal-ml', have causal-lm, sentence-similarity (did you mean causal-lm?)",
        ),
        ({"causal-lm": {"*/*/*": {"kl": None}}}, "*/*/*: no metric of causal-lm 'kl', have bytes, decode_ratio"),
        (
            {"causal-lm": {"smollm/*/*": {}}},
            "smollm/*/*: no model 'smollm', have minilm, smollm2 (did you mean smollm2?)",
        ),
        ({"causal-lm": {"*/ggufs/*": {}}}, "no format 'ggufs', have gguf, onnx (did you mean gguf?)"),
        ({"causal-lm": {"*/gguf/int8": {}}}, "no gguf variant 'int8', have f16, q4_k_m"),
        ({"causal-lm": {"*/*/q9": {}}}, "no variant 'q9', have f16, int8, q4_k_m"),
        ({"causal-lm": {"minilm/*/*": {}}}, "minilm is a sentence-similarity model, so this gate never applies"),
        ({"causal-lm": {"smollm2/gguf": {}}}, "a pattern is model/format/variant"),
    ],
)
def test_a_policy_that_names_what_is_not_there_is_an_error(policy, message):
    (problem,) = check_policy(policy, KNOWN)
    assert message in problem


def test_a_good_policy_has_no_problems():
    policy = {"causal-lm": {"smollm2/gguf/q4_k_m": {"kl_mean": Limit(max=1)}, "*/*/int8": {"bytes": Limit(max=1)}}}
    assert check_policy(policy, KNOWN) == []


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        ((0.05, 0.04, 0.06), "pass"),
        ((0.05, 0.04, 0.1), "pass"),
        ((0.1,), "pass"),
        ((0.09, 0.08, 0.11), "inconclusive"),
        ((0.12, 0.1, 0.13), "inconclusive"),
        ((0.12, 0.11, 0.13), "fail"),
        ((0.1000000001,), "fail"),
    ],
)
def test_the_whole_interval_must_be_on_the_right_side_of_a_maximum(numbers, word):
    assert kl(*numbers)["verdict"] == word


@pytest.mark.parametrize(
    ("numbers", "word"),
    [((1.5, 1.2, 1.8), "pass"), ((1.2,), "pass"), ((1.5, 1.1, 1.8), "inconclusive"), ((1.0, 0.9, 1.1), "fail")],
)
def test_the_whole_interval_must_be_on_the_right_side_of_a_minimum(numbers, word):
    found = verdict({"decode_ratio": {"min": 1.2}}, speed={"decode_ratio": estimate(*numbers)})
    assert found["verdict"] == word
    assert found["noisy"] == (word == "inconclusive")


@pytest.mark.parametrize(
    "bad",
    [
        None,
        estimate(None),
        estimate(math.nan),
        estimate(-math.inf),
        estimate(0.01, -math.inf, 0.02),
        estimate(0.01, 0.0, math.nan),
        estimate(0.01, 0.02, 0.03),
        estimate(True),
        estimate("0.01"),
        {"value": 0.01},
        0.01,
    ],
)
def test_what_is_not_a_finite_estimate_fails(bad):
    found = verdict({"kl_mean": {"max": 0.1}}, accuracy={"kl_mean": bad})
    assert found["verdict"] == "fail"
    json.dumps(found, allow_nan=False)


def test_a_metric_that_was_not_measured_fails_and_says_so():
    found = verdict({"kl_mean": {"max": 0.1}})
    assert (found["verdict"], found["why"]) == ("fail", "kl_mean was not measured on this artifact (*/*/*)")


def test_numbers_of_another_artifact_do_not_count():
    accuracy, inspected = {"kl_mean": estimate(0.01)}, {"bytes": 10}
    limits = {"kl_mean": {"max": 0.1}, "bytes": {"max": 100}}
    assert verdict(limits, accuracy=accuracy, inspected=inspected)["verdict"] == "pass"
    found = verdict(limits, accuracy=accuracy, inspected=inspected, measured_on=OTHER)
    assert [gate["verdict"] for gate in found["gates"]] == ["fail", "fail"]


def test_without_any_gate_nothing_passes():
    found = verdict({})
    assert (found["verdict"], found["gates"]) == ("fail", [])
    assert found["why"].startswith("no gate applies")


def test_without_the_device_nothing_was_run():
    found = verdict({"kl_mean": {"max": 0.1}}, accuracy={"kl_mean": estimate(0.01)}, device_available=False)
    assert (found["verdict"], found["why"]) == ("not_run", "no device for cpu-llamacpp here")
    assert found["gates"][0]["verdict"] == "not_run"


def test_a_fail_outweighs_an_inconclusive_gate_and_is_not_noisy():
    limits = {"kl_mean": {"max": 0.1}, "decode_ratio": {"min": 1}}
    speed = {"decode_ratio": estimate(1.0, 0.9, 1.1)}
    found = verdict(limits, accuracy={"kl_mean": estimate(0.5)}, speed=speed)
    assert (found["verdict"], found["noisy"]) == ("fail", False)
    assert found["why"] == "kl_mean 0.5 nat > 0.1 (*/*/*)"
    unsure = verdict(limits, accuracy={"kl_mean": estimate(0.1, 0.09, 0.11)}, speed=speed)
    assert (unsure["verdict"], unsure["noisy"]) == ("inconclusive", False)


def test_reasons_name_metric_number_interval_unit_limit_and_pattern():
    assert kl(0.564, 0.541, 0.588)["why"] == "kl_mean 0.564 [0.541, 0.588] nat > 0.1 (*/*/*)"
    assert kl(0.09, 0.08, 0.11)["why"] == "kl_mean 0.09 [0.08, 0.11] nat not clearly <= 0.1 (*/*/*)"
    assert kl(0.05)["gates"][0]["why"] == "kl_mean 0.05 nat <= 0.1 (*/*/*)"
    assert kl(0.05)["why"] == "1 of 1 gates passed"


def test_a_number_just_over_its_limit_is_not_written_like_it():
    assert kl(0.100004)["why"] == "kl_mean 0.100004 nat > 0.1 (*/*/*)"
    size = verdict({"bytes": {"max": 100_000_000}}, inspected={"bytes": 100_000_001})
    assert size["why"] == "bytes 100,000,001 B > 100,000,000 (*/*/*)"


def test_a_number_from_too_few_units_settles_nothing_and_is_measured_again_where_that_brings_more():
    found = {"value": 5.0, "low": None, "high": None, "n": 2, "unit": ""}
    openings = verdict({"load_ratio": {"min": 1.0}}, speed={"load_ratio": found})
    assert (openings["verdict"], openings["noisy"]) == ("inconclusive", False)
    judged = verdict({"decode_ratio": {"min": 1.0}}, speed={"decode_ratio": found})
    assert (judged["verdict"], judged["noisy"]) == ("inconclusive", True)
    assert judged["why"] == "decode_ratio 5 from 2 units, too few for an interval (*/*/*)"
    unknown = {**found, "value": None}
    assert verdict({"decode_ratio": {"min": 1.0}}, speed={"decode_ratio": unknown})["verdict"] == "fail"


RELEASE = {"kl_mean": {"max": 0.1}, "release_decode_ratio": {"min": 0.97}}
SHIPPED = {"name": "1-aaaaaaaa", "subject": SUBJECT, "artifact": OTHER}


def against(*numbers, kl=0.01, conditions=None):
    measured = {"metrics": {"release_decode_ratio": estimate(*numbers)}, "conditions": conditions or {}}
    accuracy = {"kl_mean": estimate(kl)}
    return verdict(RELEASE, accuracy=accuracy, release=measured, last_release=SHIPPED)


def test_a_gate_on_the_last_release_is_judged_like_any_other():
    assert against(1.0, 0.98, 1.02)["verdict"] == "pass"
    assert against(1.0, 0.98, 1.02)["last_release"] == SHIPPED
    assert against(0.9, 0.88, 0.92)["verdict"] == "fail"
    unsure = against(0.98, 0.96, 1.0)
    assert (unsure["verdict"], unsure["noisy"], unsure["release_noisy"]) == ("inconclusive", False, True)
    assert not against(0.98, 0.96, 1.0, kl=0.5)["release_noisy"]  # another attempt would not save it


def test_each_measurement_is_widened_by_its_own_disturbance():
    host = {"threads": 2, "cpus": 2, "cpus_used_by_others": 1.0, "pace": 1.0}
    busy = against(0.9, 0.88, 0.92, conditions={"host": host})
    assert (busy["verdict"], busy["release_noisy"]) == ("inconclusive", True)
    assert "others used 1 of 2 CPUs" in busy["why"]


def test_without_a_release_before_its_gates_do_not_apply_and_the_verdict_says_so():
    found = verdict(RELEASE, accuracy={"kl_mean": estimate(0.01)}, last_release={"absent": "nothing was released"})
    assert found["verdict"] == "pass"
    assert found["why"] == "1 of 1 gates passed; release_decode_ratio does not apply: nothing was released (*/*/*)"
    gate = found["gates"][1]
    assert (gate["verdict"], gate["value"]) == ("not_applicable", None)
    only = {"release_decode_ratio": {"min": 0.97}}
    alone = verdict(only, last_release={"absent": "nothing was released"})
    assert alone["verdict"] == "fail"
    assert alone["why"].startswith("no gate applies, and what is not judged is not released; release_decode_ratio does")


def test_the_released_artifact_itself_is_not_compared_with_itself():
    same = {"conditions": {"release": {"same": True}}}
    found = verdict(RELEASE, accuracy={"kl_mean": estimate(0.01)}, release=same, last_release=SHIPPED)
    assert found["verdict"] == "pass"
    assert "does not apply: it is the artifact of release 1-aaaaaaaa" in found["why"]


def test_a_release_that_was_not_compared_with_fails():
    for shipped in (SHIPPED, None):
        found = verdict(RELEASE, accuracy={"kl_mean": estimate(0.01)}, last_release=shipped)
        assert (found["verdict"], found["why"]) == (
            "fail",
            "release_decode_ratio was not measured on this artifact (*/*/*)",
        )
    other = {"metrics": {"release_decode_ratio": estimate(1.0)}, "artifact": OTHER}
    assert verdict(RELEASE, accuracy={"kl_mean": estimate(0.01)}, release=other)["verdict"] == "fail"
