"""What every registered format and task has to hold to, whichever there are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from hallmark import digest, formats, tasks, toolchains

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "optimum", "nncf", "llama_cpp", "numpy")
FORMATS = formats.names()


def test_importing_every_format_and_task_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom hallmark import formats, tasks\n"
        "[formats.spec(name) for name in formats.names()]\n[tasks.get(name) for name in tasks.names()]\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_offers_what_the_plan_and_the_jobs_call(name: str) -> None:
    adapter = formats.get(name)
    for function in ("convert", "inspect", "open", "usage"):
        assert callable(getattr(adapter, function))


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_spec_names_exists(name: str) -> None:
    spec = formats.spec(name)
    for module in (*spec.code, *spec.runtime):
        assert importlib.util.find_spec(module), f"{name}: no module {module}"
    assert set(spec.architectures) <= set(tasks.names())
    for variant_name, variant in spec.variants.items():
        assert spec.toolchain_of(variant) in toolchains.all_toolchains()
        assert set(variant.needs) <= set(spec.variants), f"{name}/{variant_name} needs a variant that is not there"
        digest.of_value(dict(variant.options))  # plain JSON
        assert set(variant.fixed) <= set(variant.options)
        for option, value in spec.options_of(variant).items():
            assert spec.settings[option].problem(value, value) == ""
        for task in spec.tasks_of(variant):
            assert spec.files_of(variant, task)


@pytest.mark.parametrize("name", FORMATS)
def test_every_option_is_explained_and_belongs_to_a_variant(name: str) -> None:
    spec = formats.spec(name)
    assert set(spec.settings) == {option for variant in spec.variants.values() for option in spec.options_of(variant)}


@pytest.mark.parametrize("name", FORMATS)
def test_every_variant_says_how_to_run_it(name: str) -> None:
    spec = formats.spec(name)
    for variant in spec.variants.values():
        if variant.intermediate:
            continue
        for task in spec.tasks_of(variant):
            usage = formats.get(name).usage(task, dict(variant.options))
            assert usage.command
            for text in usage.files.values():
                assert text


@pytest.mark.parametrize("name", FORMATS)
def test_a_bundle_asks_for_the_versions_that_its_artifact_was_measured_with(name: str) -> None:
    spec = formats.spec(name)
    for variant_name, variant in spec.variants.items():
        toolchain = toolchains.get(spec.toolchain_of(variant))
        lock = toolchains.normalised((toolchains.ENVS / toolchain.lock).read_text(encoding="utf-8"))
        locked = dict(line.split(" ")[0].split("==") for line in lock if "==" in line.split(" ")[0])
        for task in spec.tasks_of(variant) if not variant.intermediate else ():
            for requirement in formats.get(name).usage(task, dict(variant.options)).requirements:
                package, _, version = requirement.partition("==")
                assert locked.get(package.lower().replace("_", "-"), version) == version, (
                    f"{variant_name}: {requirement}"
                )


def test_an_unknown_format_or_task_names_what_there_is() -> None:
    with pytest.raises(KeyError, match="gguf"):
        formats.get("ggfu")
    with pytest.raises(KeyError, match="causal-lm"):
        tasks.get("causal")


def test_no_script_or_module_shadows_the_standard_library() -> None:
    names = {path.stem for path in (ROOT / "workflow/scripts").iterdir()}
    assert not names & set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_offers_what_the_plan_and_the_jobs_read(name: str) -> None:
    task = tasks.get(name)
    assert set(task.OPTIONS) == set(task.REFERENCE_OPTIONS) | set(task.SPEED_OPTIONS)
    for module in task.CODE:
        assert importlib.util.find_spec(module)
    assert task.METRICS
    assert task.TIMES
    assert task.reference_bytes(tasks.defaults(task.OPTIONS), 1000) > 0
