"""For each kind of change exactly the named jobs run, and what a failed one holds back: real Snakemake, tiny model."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plans import edited
from tests.workflow.conftest import CONFIG, TARGETS, Checkout, text

pytestmark = pytest.mark.slow

# A release is one whole: another bundle in it gives it another name, and so the unchanged ones are published there too.
JUDGED = {"judge": 1, "select": 1, "bundle": 1, "release": 2, "report": 1}
LIBRARY = Path("workflow/scripts/hallmark")


@pytest.fixture(autouse=True)
def untouched(built: Checkout) -> Iterator[None]:
    """Each test starts and ends with the configuration that is built."""
    built.configure(CONFIG, TARGETS)
    yield
    built.configure(CONFIG, TARGETS)


class Edit:
    """A file with other content for the length of a block."""

    def __init__(self, path: Path, old: str, new: str) -> None:
        self.path, self.old, self.new = path, old, new

    def __enter__(self) -> None:
        self.before = self.path.read_bytes()
        text = self.before.decode()
        assert self.old in text, f"{self.path} no longer holds {self.old!r}"
        self.path.write_text(text.replace(self.old, self.new, 1), encoding="utf-8")

    def __exit__(self, *error: object) -> None:
        self.path.write_bytes(self.before)


def touch_everything(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and ".snakemake" not in path.parts:
            os.utime(path)


def test_a_run_ends_with_what_it_released_and_where_to_look(built: Checkout) -> None:
    said = (built.folder / "first-run.txt").read_text(encoding="utf-8")
    assert "released in artifacts/releases/test-" in said
    assert "  cpu-llamacpp/tiny  gguf/q8_0  (2 of 2 candidates passed)\n" in said
    assert "every number: artifacts/report/index.html\n" in said


def test_touching_every_file_runs_nothing(built: Checkout) -> None:
    touch_everything(built.folder)
    assert built.planned() == []


def test_a_gate_limit_judges_selects_and_releases_and_back_costs_nothing(built: Checkout) -> None:
    gate = "policies/default/causal-lm/*~*~*/kl_mean".replace("/", "|").replace("~", "/").split("|")
    targets = copy.deepcopy(TARGETS)
    place: Any = targets
    for name in gate[:-1]:
        place = place[name]
    place["kl_mean"] = {"max": 0.4}
    built.configure(targets=targets)
    assert built.verbs() == {"judge": 3, "select": 2, "bundle": 2, "release": 2, "report": 1}
    built.snakemake()
    built.configure(targets=TARGETS)
    assert "judge" not in built.verbs()
    assert built.planned() == []


def test_no_timer_wakes_snakemake_while_jobs_run(built: Checkout) -> None:
    """It sets them for `--max-jobs-per-timespan`, and what it does then takes CPU time from what is timed."""
    built.configure(targets=edited(TARGETS, "policies.default.causal-lm", {"*/*/*": {"kl_mean": {"max": 0.45}}}))
    said = built.python(
        "from snakemake.cli import main\n"
        "from snakemake.scheduling.job_scheduler import JobScheduler\n"
        "timers = []\n"
        "JobScheduler._schedule_reevalutation = lambda self, delay: timers.append(delay)\n"
        "try:\n"
        "    main(['--cores', '4', 'all'])\n"
        "finally:\n"
        "    print('timers:', timers)\n"
    )
    assert "judge" in said
    assert "timers: []" in said


def test_one_variants_option_builds_its_chain(built: Checkout) -> None:
    variants = {"f16": {}, "q8_0": {"base": "q8_0", "options": {"type": "Q6_K"}}}
    built.configure(edited(CONFIG, "models.tiny.formats.gguf", variants))
    assert built.verbs() == {"convert": 1, "inspect": 1, "measure_accuracy": 1, "measure_speed": 1, **JUDGED}


def test_one_more_variant_builds_its_chain(built: Checkout) -> None:
    built.configure(edited(CONFIG, "models.tiny.formats.gguf", ["f16", "q8_0", "q4_k_m"]))
    chain = {"convert": 1, "inspect": 1, "measure_accuracy": 1, "measure_speed": 1}
    assert built.verbs() == {**chain, "report": 1}  # no target has it as a candidate


def test_a_readme_in_the_source_changes_only_the_release(built: Checkout) -> None:
    with Edit(built.folder / "source/README.md", "Random", "Very random"):
        built.lock("tiny")
        assert built.verbs() == {"fetch": 1, "bundle": 2, "release": 2}
        assert "fetch tiny/docs" in built.planned()
    built.lock("tiny")


def test_swapped_weights_with_an_old_time_stamp_build_that_model(built: Checkout) -> None:
    weights = built.folder / "source/model.safetensors"
    before, stat = weights.read_bytes(), weights.stat()
    try:
        weights.write_bytes(before[:-2] + bytes([before[-2] ^ 1, before[-1]]))
        os.utime(weights, ns=(stat.st_atime_ns, 0))
        built.lock("tiny")
        found = built.verbs()
        assert found["convert"] == 4
        assert found["reference"] == 1
        assert "fetch tiny/weights" in built.planned()
        assert "fetch text/data" not in built.planned()
    finally:
        weights.write_bytes(before)
        built.lock("tiny")


def test_evaluation_data_measures_accuracy_again_and_what_follows(built: Checkout) -> None:
    page = built.folder / "data/0.txt"
    before = page.read_bytes()
    try:
        page.write_text(text(7), encoding="utf-8")
        built.lock("text")
        found = built.verbs()
        assert found["measure_accuracy"] == 3
        assert found["reference"] == 1
        assert "convert" not in found
        assert "inspect" not in found
    finally:
        page.write_bytes(before)
        built.lock("text")


def test_a_formats_code_builds_that_format_and_a_comment_builds_nothing(built: Checkout) -> None:
    adapter = built.folder / LIBRARY / "formats/gguf.py"
    with Edit(adapter, "SPEC = Spec(", "# Why this is so.\nSPEC = Spec("):
        assert built.planned() == []
    with Edit(adapter, "SPEC = Spec(", "CHANGED = True\nSPEC = Spec("):
        found = built.planned()
        assert sum(job.startswith("convert ") for job in found) == 3
        assert not [job for job in found if job.startswith(("convert ", "measure", "inspect")) and "openvino" in job]


def test_a_measuring_module_measures_again_and_what_follows(built: Checkout) -> None:
    with Edit(built.folder / LIBRARY / "speed.py", "SIDES =", "CHANGED = True\nSIDES ="):
        found = built.verbs()
        assert found["measure_speed"] == 3
        assert "measure_accuracy" not in found
        assert "convert" not in found
        assert found["judge"] == 3


def test_a_toolchains_version_builds_its_artifacts(built: Checkout) -> None:
    with Edit(built.folder / "workflow/envs/openvino.txt", "nncf==", "nncf==9."):
        found = [job for job in built.planned() if job.startswith(("convert", "toolchain"))]
        assert len(found) == 2
        assert found[0] == "convert tiny/openvino/fp16"
        assert found[1].startswith("toolchain openvino-")


def test_key_order_in_the_config_runs_nothing(built: Checkout) -> None:
    turned = {name: CONFIG[name] for name in reversed(CONFIG)}
    model = CONFIG["models"]["tiny"]
    turned["models"] = {"tiny": {name: model[name] for name in reversed(model)}}
    built.configure(turned, {name: TARGETS[name] for name in reversed(TARGETS)})
    assert built.planned() == []


def test_another_umask_and_time_zone_run_nothing(built: Checkout) -> None:
    built.environment = {"TZ": "Pacific/Auckland", "LC_ALL": "C"}
    before = os.umask(0o077)
    try:
        assert built.planned() == []
    finally:
        os.umask(before)
        built.environment = {}


def test_another_checkout_with_the_same_store_converts_nothing(built: Checkout, tmp_path: Path) -> None:
    other = Checkout(tmp_path / "other")
    ignored = shutil.ignore_patterns("artifacts", ".snakemake", "__pycache__")
    shutil.copytree(built.folder, other.folder, ignore=ignored)
    other.configure({**CONFIG, "store": str(built.folder / "artifacts/store")})
    assert set(other.verbs()) == {"release"}  # its own releases folder is empty


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_a_damaged_file_of_the_store_is_found_and_built_again(built: Checkout, how: str) -> None:
    model = next((built.folder / "artifacts/store/convert/tiny/gguf/q8_0").glob("*/files/model.gguf"))
    whole, stat = model.read_bytes(), model.stat()
    model.chmod(0o644)
    if how == "truncated":
        model.write_bytes(whole[:-1])
    elif how == "flipped":
        model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    else:
        model.unlink()
    if how != "deleted":
        os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    output = built.snakemake()
    assert "model.gguf" in output and "will be built again" in output
    assert model.read_bytes() == whole


def test_a_measurement_that_is_lost_is_taken_again_and_judged_and_chosen_by(built: Checkout) -> None:
    (place,) = (built.folder / "artifacts/store/measure_speed/tiny/gguf/q8_0").iterdir()
    shutil.rmtree(place)
    follows = {"measure_speed": 1, "judge": 1, "select": 1, "bundle": 1, "report": 1}
    assert built.verbs() == follows
    built.snakemake()
    assert built.planned() == []  # and nothing is found to be made from what was lost


def test_why_names_the_component_that_changed(built: Checkout) -> None:
    variants = {"f16": {}, "q8_0": {"base": "q8_0", "options": {"type": "Q6_K"}}}
    built.configure(edited(CONFIG, "models.tiny.formats.gguf", variants))
    command = [sys.executable, "-m", "hallmark", "why", "tiny/gguf/q8_0"]
    result = subprocess.run(
        command, cwd=built.folder, env=built._environment(), capture_output=True, text=True, check=True
    )
    assert "recipe.options.type: Q8_0 -> Q6_K" in result.stdout


def test_a_conversion_that_fails_holds_back_its_own_target_and_the_report_shows_the_rest(built: Checkout) -> None:
    variants = {"fp16": {}, "odd": {"base": "int4_awq", "options": {"samples": 99}}}
    candidates = ["openvino/odd", "openvino/fp16"]
    calibrated = edited(CONFIG, "models.tiny.calibration", "little")
    little = {"source": {"kind": "path", "folder": "data", "files": ["0.txt"]}, "reader": "text"}
    built.configure(
        edited(edited(calibrated, "data.little", little), "models.tiny.formats.openvino", variants),
        edited(TARGETS, "targets.intel-openvino.candidates", candidates),
    )
    built.lock("little")
    output = built.snakemake(check=False)
    assert "1 texts of 128 tokens or more, samples is 99" in output  # the last lines of its log
    assert "artifacts/report/index.html shows what was built" in output
    page = (built.folder / "artifacts/report/index.html").read_text(encoding="utf-8")
    assert "<li><code>tiny/openvino/odd</code></li>" in page
    assert "<li><code>tiny/intel-openvino</code></li>" in page
    assert 'data-sort="openvino/fp16"' in page
    assert list((built.folder / "artifacts/releases").glob("*/cpu-llamacpp/tiny/manifest.json"))
    built.configure(CONFIG, TARGETS)
    assert built.planned() == []  # the failed run has cost nothing that was there
