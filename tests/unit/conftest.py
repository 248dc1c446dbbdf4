"""What tests of bundles and of releases share: bundles of a tiny artifact, made by the code under test."""

import hashlib
from dataclasses import dataclass, field, replace

import pytest

from hallmark import bundle, digest, gates, selection
from hallmark.formats import Usage
from hallmark.tasks import Metric

METRICS = {
    "kl_mean": Metric("accuracy", "nat", "lower", "mean KL divergence to the source"),
    "decode_ratio": Metric("speed", "", "higher", "decode speed over the source's"),
    "release_decode_ratio": Metric("release", "", "higher", "decode speed over the last release's", "clock"),
    "bytes": Metric("inspect", "B", "lower", "size of the files"),
}
USAGE = Usage("python {folder}/run.py {folder}/model.gguf", ("gguf==0.19.0", "x[y]>1"), {"run.py": "print(1)\n"})
README = "---\nlicense: apache-2.0\ntags:\n- x\n---\n\n# Tiny\n\nA | B\n"


def describe(files):
    return {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}


@dataclass(frozen=True)
class Sample:
    """A model with one or two candidates; `kl` maps each candidate to its divergence, judged against `limit`."""

    kl: dict
    limit: float = 0.1
    model: str = "tiny"
    target: str = "cpu"
    weights: bytes = b"weights"
    usage: Usage = USAGE
    readme: str | None = README
    components: dict = field(default_factory=lambda: {"code": "c" * 64})
    released: dict | None = None  # what its gate on `release_decode_ratio` compares with; None: it has no such gate

    @property
    def artifact(self):
        return {"model.gguf": self.weights, "tokenizer/vocab.txt": b"a\nb\n"}

    def resolved(self, name):
        limits = {"kl_mean": gates.Limit(max=self.limit), "bytes": gates.Limit(max=1000)}
        if self.released is not None:
            limits["release_decode_ratio"] = gates.Limit(min=0.97)
        return gates.resolve({"lm": {"*/*/*": limits}}, "lm", f"{self.model}/{name}")

    @property
    def policies(self):
        return {name: gates.policy_digest(self.resolved(name)) for name in self.kl}

    def measurements(self, name):
        artifact = digest.of_tree(describe(self.artifact))
        kl = {"value": self.kl[name], "low": self.kl[name], "high": self.kl[name], "n": 4, "unit": "nat"}
        ratio = {"value": 1.52, "low": 1.41, "high": 1.63, "n": 40, "unit": ""}
        return [
            {"kind": "accuracy", "artifact": artifact, "metrics": {"kl_mean": kl}, "conditions": {}},
            {
                "kind": "speed",
                "artifact": artifact,
                "metrics": {"decode_ratio": ratio},
                "conditions": {"threads": 2, "hardware_class": "A CPU"},
            },
        ]

    def inspection(self):
        return {"artifact": digest.of_tree(describe(self.artifact)), "metrics": {"bytes": 11}, "facts": {}}

    def verdict(self, name):
        artifact = digest.of_tree(describe(self.artifact))
        found = (self.resolved(name), self.measurements(name), self.inspection(), artifact)
        return gates.judge(f"{self.model}/{name}", self.target, *found, metrics=METRICS, last_release=self.released)

    def write(self, folder):
        """Write the bundle (or the refusal) and return its folder."""
        verdicts = {name: self.verdict(name) for name in self.kl}
        chosen = selection.choose(self.model, self.target, list(self.kl), verdicts)
        source, docs, out = folder / "source", folder / "docs", folder / "bundle"
        for name, data in self.artifact.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)
        docs.mkdir(parents=True)
        (docs / "LICENSE").write_text("Apache License\n")
        if self.readme is not None:
            (docs / "README.md").write_text(self.readme)
        out.mkdir()
        choice = self._choice(source, chosen["selected"])
        origin = bundle.Origin(docs, {"kind": "hub", "revision": "abc"})
        bundle.assemble(out, chosen, verdicts, choice, origin, "0.1.0")
        return out

    def _choice(self, source, selected):
        if selected is None:
            return None
        return bundle.Choice(
            files=source,
            expected=describe(self.artifact),
            usage=self.usage,
            recipe={"format": "gguf", "variant": selected.split("/")[1], "options": {"type": "Q4_K_M"}},
            components=self.components,
            inspection=self.inspection(),
            measurements=self.measurements(selected),
            metrics=METRICS,
        )


@pytest.fixture
def sample():
    """A function that changes what it is told of a passing sample."""
    return lambda **changes: replace(Sample({"gguf/q4_k_m": 0.5, "gguf/q8_0": 0.01}), **changes)
