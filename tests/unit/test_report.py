"""The report: whole, self-contained, the same for the same inputs, and not led astray by odd ones."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hallmark import bundle, charts, figures, gates, report, selection, templates
from hallmark.tasks import Metric

METRICS = {
    "kl_mean": Metric("accuracy", "nat", "lower", "mean KL divergence"),
    "top1": Metric("accuracy", "", "higher", "same most likely token"),
    "tokens_per_s": Metric("speed", "tokens/s", "higher", "tokens per second"),
    "prefill_ratio": Metric("speed", "", "higher", "prefill speed over the source's"),
    "decode_ratio": Metric("speed", "", "higher", "decode speed over the source's"),
}
VOID = {"meta", "path", "circle", "br"}


def estimate(value, unit="", spread=0.1):
    if value is None:
        return {"value": None, "low": None, "high": None, "n": 8, "unit": unit}
    return {"value": value, "low": value * (1 - spread), "high": value * (1 + spread), "n": 8, "unit": unit}


def artifact(name, kl, ratio, size=100_000_000, **more):
    family, _, variant = name.partition("/")
    accuracy = {"kl_mean": estimate(kl, "nat"), "top1": estimate(None if kl is None else 1 - kl, spread=0.001)}
    speed = {"tokens_per_s": estimate(50 * ratio, "tokens/s"), "decode_ratio": estimate(ratio)}
    samples = {side: [{"per_token": 0.01 * step} for step in (1, 2, 3)] for side in ("artifact", "source")}
    facts = {
        "digest": "d" * 64,
        "bytes": size,
        "seconds": 12.5,
        "recipe": {"type": "Q8_0"},
        "notes": {},
        "inspection": {"artifact": "d" * 64, "metrics": {}, "facts": {"tensors": 3}},
        "measurements": [{"artifact": "d" * 64, "metrics": part} for part in (accuracy, speed)],
        "samples": samples,
    }
    return report.Artifact("tiny", family, variant, **{**facts, **more})


def inputs(artifacts, candidates=None):
    limits = {"kl_mean": gates.Limit(max=0.05), "decode_ratio": gates.Limit(min=1)}
    resolved = {name: (limit, "*/*/*") for name, limit in limits.items()}
    verdicts = {
        found.name: gates.judge(
            found.subject, "cpu", resolved, found.measurements, found.inspection, found.digest, metrics=METRICS
        )
        for found in artifacts
        if candidates is None or found.name in candidates
    }
    return report.Inputs(
        title="Demo",
        hallmark="0.1.0",
        release="1.0-abcdef12",
        machine="2 CPUs",
        models=[report.Model("tiny", "lm", "a folder", 400_000_000)],
        artifacts=artifacts,
        missing=[],
        verdicts=list(verdicts.values()),
        selections=[selection.choose("tiny", "cpu", list(verdicts), verdicts)],
        metrics={"lm": METRICS},
        times={"lm": {"per_token": "time per token"}},
    )


@pytest.fixture
def usual():
    return inputs([artifact("gguf/f16", 1e-7, 2.0), artifact("gguf/q4", 0.2, 3.0), artifact("onnx/int8", 0.01, 1.02)])


class Balance(HTMLParser):
    """Finds tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def well_formed(page):
    balance = Balance()
    balance.feed(page)
    return not balance.open and not balance.wrong


def test_it_is_one_page_without_network(usual):
    page = report.build(usual)
    assert well_formed(page)
    assert not re.search(r"https?:|src=|href=|url\(|@import", page)
    assert "default-src 'none'" in page


def test_the_same_inputs_give_the_same_page(usual):
    assert report.build(usual) == report.build(usual)


def test_it_shows_every_artifact_its_verdict_and_why(usual):
    page = report.build(usual)
    for found in usual.artifacts:
        assert f'data-sort="{found.name}"' in page
    assert "kl_mean 0.2 [0.18, 0.22] nat &gt; 0.05 (*/*/*)" in page
    assert "decode_ratio 1.02 [0.918, 1.122] not clearly &gt;= 1 (*/*/*)" in page
    assert page.count("<em>released</em>") == 1
    assert "100 MB<small>25 % of source</small>" in page


def test_a_target_that_releases_nothing_says_so():
    page = report.build(inputs([artifact("gguf/q4", 0.2, 3.0)]))
    assert "no candidate passed" in page
    assert '<article class="card refused">' in page


def test_what_is_missing_is_named():
    made = inputs([artifact("gguf/f16", 1e-7, 2.0)])
    page = report.build(replace(made, missing=["tiny/gguf/q4"]))
    assert well_formed(page)
    assert "<li><code>tiny/gguf/q4</code></li>" in page
    assert "Not in the store" not in report.build(made)


def test_what_is_no_targets_candidate_is_shown_without_verdict():
    page = report.build(inputs([artifact("gguf/f16", 1e-7, 2.0), artifact("gguf/q4", 0.2, 3.0)], ["gguf/f16"]))
    assert page.count("no target's candidate") == 1


def test_text_from_outside_is_escaped():
    evil = "<script>alert(1)</script>"
    found = artifact("gguf/f16", 1e-7, 2.0, recipe={evil: evil}, notes={"a": evil})
    made = inputs([found])
    made = replace(made, title=evil, models=[replace(made.models[0], source=evil)])
    page = report.build(made)
    assert evil not in page
    assert page.count("<script>") == 1


@pytest.mark.parametrize(
    "artifacts",
    [
        [],
        [artifact("gguf/f16", 0.0, 1.5)],
        [artifact("gguf/f16", None, 1.5)],
        [artifact("gguf/f16", 0.01, 1.5, measurements=[], samples={})],
        [artifact("gguf/f16", 0.01, 1.5, seconds=None, samples={"artifact": [{"per_token": 0.1}], "source": []})],
        [artifact("gguf/f16", 0.01, 1.5, size=0), artifact("gguf/q4", 0.01, 1.5, size=0)],
    ],
)
def test_it_bears_missing_and_degenerate_numbers(artifacts):
    assert well_formed(report.build(inputs(artifacts)))


def test_the_headline_is_what_a_gate_names_and_a_ratio_for_speed():
    assert figures.headline(METRICS, "speed", {"decode_ratio"}) == "decode_ratio"
    assert figures.headline(METRICS, "speed", set()) == "prefill_ratio"
    assert figures.headline(METRICS, "accuracy", {"top1"}) == "top1"
    assert figures.headline({}, "accuracy", set()) is None


@pytest.mark.parametrize(
    ("values", "better", "kind"),
    [
        ([1e-6, 0.5], "lower", "log"),
        ([0.0, 0.004, 0.5], "lower", "log"),
        ([0.955, 0.999, 1.0], "higher", "nines"),
        ([1.0, 3.0], "higher", "linear"),
        ([0.4, 0.6], "higher", "linear"),
        ([-0.01, 0.5], "lower", "linear"),
        ([0.0, 0.0], "lower", "linear"),
        ([], "higher", "linear"),
    ],
)
def test_the_scale_suits_the_numbers(values, better, kind):
    axis = charts.axis("x", [(value, value, value) for value in values], top_is=better)
    assert axis.kind == kind
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places, reverse=better == "lower")
    assert all(0 <= place <= 1 for place in places)
    assert all(0 <= place <= 1 for place, _ in axis.ticks())
    assert len(axis.ticks()) >= 2


def test_labels_of_marks_at_one_place_do_not_cover_each_other():
    points = [
        charts.Point((1, 1, 1), (1, 1, 1), name, name, 0, hollow=False, ringed=True) for name in ("first", "second")
    ]
    axis = charts.Axis("x", "linear", 0, 2)
    drawn = charts.scatter("both", points, axis, axis)
    places = re.findall(r'class="label" x="([\d.]+)" y="([\d.]+)"', drawn)
    assert len(set(places)) == 2


def test_a_changed_template_changes_the_key(tmp_path, monkeypatch):
    assert templates.digest_of(*report.TEMPLATES) == templates.digest_of(*reversed(report.TEMPLATES))
    assert templates.digest_of(*report.TEMPLATES) != templates.digest_of(*bundle.TEMPLATES)
    for name in report.TEMPLATES:
        (tmp_path / name).write_text("other")
    before = templates.digest_of(*report.TEMPLATES)
    monkeypatch.setattr(templates, "__file__", str(tmp_path / "__init__.py"))
    assert templates.digest_of(*report.TEMPLATES) != before


def test_a_gate_that_does_not_apply_shows_no_number_and_counts_as_none(usual):
    shown = usual.verdicts[0]
    gate = {
        **shown["gates"][0],
        "metric": "release_decode_ratio",
        "verdict": "not_applicable",
        "why": "a first release",
    }
    gate |= {"value": None, "low": None, "high": None}
    verdicts = [{**shown, "gates": [*shown["gates"], gate]}, *usual.verdicts[1:]]
    page = report.build(replace(usual, verdicts=verdicts))
    assert "2 gates passed" in page
    assert "does not apply" in page
    assert 'title="a first release"' in page
