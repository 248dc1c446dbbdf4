"""A checkout of its own with a tiny model, and what real Snakemake does in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COPIED = ("Snakefile", "workflow", "profiles")
CONFIG = {
    "models": {
        "tiny": {
            "source": {"kind": "path", "folder": "source"},
            "task": "causal-lm",
            "evaluation": "text",
            "formats": {"gguf": ["f16", "q8_0"], "openvino": ["fp16"]},
            "measure": {"blocks": 4, "tokens": 64, "rounds": 12, "least_seconds": 1, "loads": 1, "prompt_tokens": 16},
        }
    },
    "data": {"text": {"source": {"kind": "path", "folder": "data", "files": ["*.txt"]}, "reader": "text"}},
    "targets_file": "config/targets.yaml",
    "release": {"version": "test"},
}
TARGETS = {
    "targets": {
        "cpu-llamacpp": {"candidates": ["gguf/q8_0", "gguf/f16"]},
        "intel-openvino": {"candidates": ["openvino/fp16"]},
    },
    "policies": {"default": {"causal-lm": {"*/*/*": {"kl_mean": {"max": 0.5}}}}},
}


@dataclass
class Checkout:
    """A folder with the workflow and its own config, source and data."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def configure(self, config: object = None, targets: object = None) -> None:
        """Write the configuration, or leave the part that is not given."""
        (self.folder / "config").mkdir(exist_ok=True)
        for name, content in (("config", config), ("targets", targets)):
            if content is not None:
                text = yaml.safe_dump(content, sort_keys=False)
                (self.folder / f"config/{name}.yaml").write_text(text, encoding="utf-8")

    def lock(self, *names: str) -> None:
        self._run([sys.executable, "-m", "hallmark", "lock", *names])

    def snakemake(self, *arguments: str, check: bool = True) -> str:
        """Run Snakemake; what it prints, both streams."""
        return self._run([sys.executable, "-m", "snakemake", "--cores", "4", "all", *arguments], check=check)

    def python(self, program: str) -> str:
        """Run a program in the checkout; what it prints, both streams."""
        return self._run([sys.executable, "-c", program])

    def command(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start Snakemake in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "4", "all", *arguments],
            cwd=self.folder,
            env=self._environment() | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def planned(self) -> list[str]:
        """The jobs that a run would do now, `verb subject`, sorted; without the summary rule."""
        output = self.snakemake("--dry-run")
        return sorted(found[1] for found in re.finditer(r"^(\w+ [\w./-]+)  \(", output, re.MULTILINE))

    def verbs(self) -> dict[str, int]:
        """How many jobs of each verb a run would do now."""
        counts: dict[str, int] = {}
        for job in self.planned():
            verb = job.partition(" ")[0]
            counts[verb] = counts.get(verb, 0) + 1
        return counts

    def _environment(self) -> dict[str, str]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("HALLMARK_MAIN")}
        return variables | {"PYTHONPATH": str(self.folder / "workflow/scripts")} | self.environment

    def _run(self, command: list[str], check: bool = True) -> str:
        result = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}")
        return result.stdout


def text(seed: int) -> str:
    """A page of English that any Python brings along; another seed gives other text."""
    import pydoc_data.topics

    topics = sorted(pydoc_data.topics.topics.values(), key=len)[-12:]
    return topics[seed % len(topics)]


def prepare(folder: Path, checkpoint: Path) -> Checkout:
    """A fresh checkout in a folder, with a locked configuration."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    shutil.copytree(checkpoint, folder / "source")
    (folder / "data").mkdir()
    for number in range(6):
        (folder / f"data/{number}.txt").write_text(text(number), encoding="utf-8")
    checkout = Checkout(folder)
    checkout.configure(CONFIG, TARGETS)
    checkout.lock()
    return checkout


@pytest.fixture(scope="session")
def built(
    tiny_llama: Path,
    made_once_for_all: Callable[[str, Callable[[Path], object]], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Checkout:
    """A checkout where everything has been built once; a test that changes it puts it back."""

    def make(folder: Path) -> None:
        checkout = prepare(folder, tiny_llama)
        (folder / "first-run.txt").write_text(checkout.snakemake(), encoding="utf-8")

    made = made_once_for_all("built", make)
    folder = tmp_path_factory.mktemp("built") / "checkout"
    shutil.copytree(made, folder, symlinks=True)
    return Checkout(folder)
