"""Toolchains: what changes a digest and what does not, how pip's settings reach uv, and how one is made once.

What uv and the compiler do is stood in for, but for the slow tests at the end.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hallmark import native, once, packages, toolchains
from hallmark.packages import Unreachable
from hallmark.processes import ToolError
from hallmark.surroundings import worker_env


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of workflow/envs that a test may change, and an empty cache folder."""
    folder = tmp_path / "envs"
    shutil.copytree(toolchains.ENVS, folder)
    monkeypatch.setattr(toolchains, "ENVS", folder)
    monkeypatch.setenv("HALLMARK_CACHE", str(tmp_path / "cache"))
    toolchains._described.cache_clear()
    yield folder
    toolchains._described.cache_clear()


def edit(envs: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = envs / "toolchains.yaml"
    described = yaml.safe_load(file.read_text())
    change(described)
    file.write_text(yaml.safe_dump(described))
    toolchains._described.cache_clear()


def digest(name: str, build: str = "cpu") -> str:
    return toolchains.get(name, build).digest


def test_every_toolchain_has_a_lock_with_a_hash_for_each_package_and_no_address() -> None:
    for name in toolchains.all_toolchains():
        text = (toolchains.ENVS / toolchains.get(name).lock).read_text()
        assert "://" not in text
        for line in toolchains.normalised(text):
            package = line.partition("==")[0]
            assert "==" in line and "--hash=sha256:" in line, line
            assert package not in ("torch", "torchvision")


def test_top_requirements_are_in_the_locks() -> None:
    for name in toolchains.all_toolchains():
        lock = toolchains.normalised((toolchains.ENVS / toolchains.get(name).lock).read_text())
        wanted = (toolchains.ENVS / f"{name}.in").read_text().splitlines()
        for line in (line for line in wanted if "==" in line):
            assert any(found.startswith(line.replace("_", "-").lower() + " ") for found in lock), f"{name}: {line}"


def test_a_comment_or_another_order_in_a_lock_changes_no_digest(envs: Path) -> None:
    before = digest("torch")
    lock = envs / "torch.txt"
    requirements = lock.read_text().split("\n", 1)[0]
    lock.write_text(f"# a comment\n\n{lock.read_text()}\n   # via {requirements[:5]}\n")
    assert digest("torch") == before


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("torch", "torch.txt", "transformers==5.5.4", "transformers==5.5.5"),
        ("torch", "torch.txt", "--hash=sha256:", "--hash=sha256:0"),
        ("llama_cpp", "toolchains.yaml", 'GGML_NATIVE: "OFF"', 'GGML_NATIVE: "ON"'),
        ("llama_cpp", "toolchains.yaml", "version: 0.3.36", "version: 0.3.37"),
        ("onnx", "toolchains.yaml", "torch: 2.13.0", "torch: 2.14.0"),
    ],
)
def test_what_decides_a_toolchain_changes_its_digest(envs: Path, name: str, file: str, old: str, new: str) -> None:
    before, others = digest(name), digest("openvino")
    text = (envs / file).read_text()
    assert old in text
    (envs / file).write_text(text.replace(old, new))
    toolchains._described.cache_clear()
    assert digest(name) != before
    if file != "toolchains.yaml" or name == "llama_cpp":
        assert digest("openvino") == others


def test_the_build_of_torch_is_in_the_digest() -> None:
    assert digest("torch", "cpu") != digest("torch", "cu130")


def test_the_machine_is_in_the_folder_and_not_in_the_digest(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = toolchains.get("torch")
    folder, value = here.folder, here.digest
    monkeypatch.setattr(toolchains, "local_platform", lambda: {"system": "elsewhere"})
    there = toolchains.get("torch")
    assert there.digest == value
    assert there.folder != folder and there.folder.name.startswith("torch-")


def test_an_unknown_toolchain_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no toolchain 'onyx', have llama_cpp, lm_eval, loadgen, "):
        toolchains.get("onyx")


def test_programs_are_shared_by_toolchains_that_differ_in_python_packages_only(envs: Path, tmp_path: Path) -> None:
    def place() -> Path:
        recipe = toolchains.get("llama_cpp").programs
        assert recipe is not None
        return recipe.built(tmp_path, toolchains.local_platform())

    before = place()
    lock = envs / "llama_cpp.txt"
    lock.write_text(lock.read_text().replace("transformers==5.5.4", "transformers==5.5.5"))
    assert place() == before
    edit(envs, lambda described: described["llama_cpp"]["programs"]["options"].update(GGML_NATIVE="ON"))
    assert place() != before


LISTING = """\
:env:.cert='/env.crt'
:env:.default-timeout='180'
global.cert='/global.crt'
global.extra-index-url='file:///a/simple file:///b/simple'
global.find-links='\\n/wheels\\n/more'
global.index-url='https://mirror/simple'
install.constraint="/it's.txt"
wheel.cert='/other-command.crt'
"""


def test_settings_of_pip_become_settings_of_uv() -> None:
    assert packages.translate(packages.parse_listing(LISTING)) == {
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "UV_INDEX": "file:///a/simple file:///b/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_CONSTRAINT": "/it's.txt",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/env.crt",
    }


def test_variables_of_pip_count_and_those_of_uv_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ = {"PIP_INDEX_URL": "http://a", "PIP_EXTRA_INDEX_URL": "http://b", "PIP_CONFIG_FILE": "/dev/null"}
    found = packages.uv_settings(environ)
    assert found["UV_DEFAULT_INDEX"] == "http://a"
    assert (found["UV_INDEX"], found["UV_INDEX_STRATEGY"]) == ("http://b", "unsafe-best-match")
    assert "UV_DEFAULT_INDEX" not in packages.uv_settings(environ | {"UV_DEFAULT_INDEX": "http://mine"})
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda _: None)
    assert packages.uv_settings(environ)["UV_DEFAULT_INDEX"] == "http://a"


def test_no_network_is_said_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(packages, "pip_settings", lambda _: {"global.index-url": "http://127.0.0.1:9/simple"})
    offline = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "2"}
    with pytest.raises(Unreachable, match=r"cannot be reached[^$]*pip config set"):
        packages.run_uv("pip", "install", "--target", tmp_path / "t", "six", cache=tmp_path / "uv", settings=offline)


class Uv:
    """Stands in for `run_uv`: notes what it is asked, makes the environment's folder, fails where told."""

    def __init__(self, refuses: str = "") -> None:
        self.asked: list[list[str]] = []
        self.refuses = refuses

    def __call__(self, *argv: Any, cache: Path, settings: Mapping[str, str] | None = None, **_: Any) -> str:
        words = [str(word) for word in argv]
        self.asked.append(words)
        if self.refuses and any(self.refuses in word for word in words):
            raise ToolError(words, 2, ["no such version"])
        if words[0] == "venv":
            (Path(words[-1]) / "bin").mkdir(parents=True)
        return '[{"name": "torch", "version": "2.13.0+cpu"}]'


@pytest.fixture
def uv(envs: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    stand_in = Uv()
    monkeypatch.setattr(toolchains, "run_uv", stand_in)
    return stand_in


def test_a_toolchain_is_made_once(uv: Uv) -> None:
    first = toolchains.make("torch")
    asked = len(uv.asked)
    assert first.made and json.loads(first.ready.read_text())["packages"] == {"torch": "2.13.0+cpu"}
    assert json.loads(first.ready.read_text())["digest"] == first.digest
    assert toolchains.make("torch").folder == first.folder
    assert len(uv.asked) == asked


def test_a_half_made_toolchain_is_removed_first(uv: Uv) -> None:
    toolchain = toolchains.get("torch")
    (toolchain.folder / "lib").mkdir(parents=True)
    (toolchain.folder / "lib/half.py").write_text("")
    assert not toolchain.made
    toolchains.make("torch")
    assert not (toolchain.folder / "lib").exists() and toolchain.made


def test_a_toolchain_whose_ready_file_was_removed_is_not_made_again(uv: Uv) -> None:
    """Snakemake removes a rule's output before it runs it; another checkout may be using the environment."""
    toolchain = toolchains.make("torch")
    asked = len(uv.asked)
    toolchain.ready.unlink()
    toolchains.make("torch")
    assert toolchain.ready.exists() and len(uv.asked) == asked


def test_a_toolchain_that_failed_is_not_made(uv: Uv) -> None:
    uv.refuses = "--require-hashes"
    with pytest.raises(ToolError):
        toolchains.make("torch")
    assert not toolchains.get("torch").made and not toolchains.get("torch").ready.exists()


def test_torch_comes_from_its_makers_where_pips_settings_have_no_such_build(uv: Uv) -> None:
    uv.refuses = "torch==2.13.0+cu130"
    toolchains.make("torch", "cu130")
    tried = [words[-3:] for words in uv.asked if any(word.startswith("torch==") for word in words)]
    assert tried[0][-1] == "torch==2.13.0+cu130"
    assert tried[1] == ["torch==2.13.0", "--torch-backend", "cu130"]


def test_torch_is_installed_after_what_it_needs_and_with_the_lock_as_limit(uv: Uv) -> None:
    toolchains.make("onnx")
    locked, torch = uv.asked[1], uv.asked[2]
    assert {"--no-deps", "--require-hashes"} <= set(locked)
    assert torch[torch.index("--constraint") + 1].endswith("onnx.txt")


def test_a_toolchain_without_torch_gets_none_and_every_build_of_torch_has_the_same(uv: Uv) -> None:
    for name in ("loadgen", "lm_eval"):
        toolchains.make(name)
        assert digest(name, "cpu") == digest(name, "cu130")
    assert not any(word.startswith("torch") for words in uv.asked for word in words)


def test_a_lock_is_made_from_the_index_alone_and_a_change_is_told(
    uv: Uv, envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["numpy==1.0 \\\n    --hash=sha256:1\n", "numpy==1.0 --hash=sha256:1\n# no change\n"])

    def compile_lock(*argv: Any, settings: Mapping[str, str], **more: Any) -> str:
        assert settings == {"UV_CONSTRAINT": "", "UV_INDEX": "", "UV_FIND_LINKS": ""}
        Path(argv[-1]).write_text(next(answers))
        return uv(*argv, **more)

    monkeypatch.setattr(toolchains, "run_uv", compile_lock)
    assert toolchains.relock("torch") is True
    assert toolchains.relock("torch") is False
    (asked, _) = uv.asked
    assert {"--universal", "--generate-hashes", "--no-header", str(envs / "torch.in")} <= set(asked)


def test_of_two_makers_one_makes_and_the_other_waits(tmp_path: Path) -> None:
    folder, log = tmp_path / "x/folder", []

    def make() -> None:
        with once.made_once(folder, lambda: (folder / "done").exists()) as needed:
            log.append(needed)
            if needed:
                folder.mkdir()
                time.sleep(0.2)
                (folder / "done").touch()

    makers = [threading.Thread(target=make) for _ in range(3)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert sorted(log) == [False, False, True]


RECIPE = native.Recipe(
    folder="tool",
    package="tool-python",
    version="1.0",
    sha256="0" * 64,
    source="vendor/tool",
    options={"OPTION": "ON"},
    targets=("tool-run",),
    keep=("convert.py", "scripts"),
)


@pytest.fixture
def native_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stands in for pip and cmake: a source distribution, and a build that reports two steps."""
    asked: list[list[str]] = []

    def run_tool(argv: Any, env: Mapping[str, str], on_line: Callable[[str], None] = lambda _: None, **_: Any) -> str:
        words = [str(word) for word in argv]
        asked.append(words)
        if "download" in words:
            source = tmp_path / "tool_python-1.0"
            (source / "vendor/tool/scripts").mkdir(parents=True, exist_ok=True)
            (source / "vendor/tool/convert.py").write_text("convert")
            (source / "vendor/tool/scripts/a.py").write_text("a")
            folder = words[words.index("--dest") + 1]
            subprocess.run(["tar", "czf", f"{folder}/tool.tar.gz", "-C", tmp_path, source.name], check=True)
        if "--build" in words:
            for line in ("[1/2] Building", "a warning", "[2/2] Linking"):
                on_line(line)
            program = Path(words[words.index("--build") + 1]) / "bin/tool-run"
            program.parent.mkdir(parents=True)
            program.write_text("program")
        return ""

    monkeypatch.setattr(native, "run_tool", run_tool)
    return asked


def install(tmp_path: Path, name: str, on_progress: Callable[..., None] = lambda *_: None) -> Path:
    """The programs as they lie in a new toolchain of that name."""
    folder = tmp_path / name
    folder.mkdir()
    native.install(RECIPE, folder, tmp_path / "cache", toolchains.local_platform(), on_progress)
    return folder / "tool"


def test_programs_are_built_once_and_the_build_folder_goes(tmp_path: Path, native_tools: list[list[str]]) -> None:
    seen: list[tuple[int, int, str]] = []
    made = install(tmp_path, "one", lambda *step: seen.append(step))
    assert (made / "bin/tool-run").read_text() == "program"
    assert (made / "convert.py").read_text() == "convert" and (made / "scripts/a.py").read_text() == "a"
    assert seen == [(1, 2, "compile steps of tool"), (2, 2, "compile steps of tool")]
    assert not list((tmp_path / "cache/build").iterdir())
    built = len(native_tools)
    assert (install(tmp_path, "two") / "bin/tool-run").exists() and len(native_tools) == built


def test_programs_depend_on_no_build_folder(tmp_path: Path, native_tools: list[list[str]]) -> None:
    install(tmp_path, "one")
    configure = next(words for words in native_tools if "-S" in words)
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    assert f"-DCMAKE_INSTALL_RPATH={origin}" in configure and "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON" in configure


def test_a_killed_build_goes_on_with_the_same_source_files(
    tmp_path: Path, native_tools: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(native, "_collect", killed)
        with pytest.raises(KeyboardInterrupt):
            install(tmp_path, "one")
    (work,) = (tmp_path / "cache/build").iterdir()
    source = work / "source/tool_python-1.0/vendor/tool/convert.py"
    before = source.stat()
    shutil.rmtree(work / "tree/bin")  # the stand-in's build is not one that can go on
    with monkeypatch.context() as patch:
        patch.setattr(native, "_collect", killed)
        with pytest.raises(KeyboardInterrupt):
            install(tmp_path, "two")
    assert (source.stat().st_ino, source.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_no_compiler_is_said_before_anything_is_fetched(
    tmp_path: Path, native_tools: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler.*apt-get install g\+\+"):
        install(tmp_path, "one")
    assert not native_tools


IMPORTS = {
    "torch": "import torch, transformers, accelerate, gguf, sentencepiece, google.protobuf",
    "onnx": "import torch, onnx, onnxruntime, transformers; from optimum.exporters.onnx import main_export",
    "onnx_genai": "import torch, onnx, onnxruntime, onnxruntime_genai; from onnxruntime_genai.models import builder",
    "openvino": "import torch, openvino, openvino_tokenizers, nncf; from optimum.intel import OVModelForCausalLM",
    "llama_cpp": "import torch, transformers, gguf, sentencepiece, llama_cpp; llama_cpp.llama_backend_init()",
    "lm_eval": "from lm_eval.evaluator import simple_evaluate",
    "loadgen": "import mlperf_loadgen",
}
SAME_TORCH = "import torch; assert torch.__version__ == '2.13.0+cpu', torch.__version__; "


@pytest.mark.slow
@pytest.mark.parametrize("name", toolchains.all_toolchains())
def test_what_a_toolchain_is_for_can_be_imported_and_sends_no_statistics(
    toolchain: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    python = toolchain(name)
    program = (SAME_TORCH if toolchains.get(name).torch else "") + IMPORTS[name]
    subprocess.run([python, "-c", program], check=True, env=worker_env(python.parents[1], 1, tmp_path))
    written = [path.relative_to(tmp_path / "home").as_posix() for path in (tmp_path / "home").rglob("*")]
    assert sorted(written) == ["intel", "intel/openvino_telemetry"]


@pytest.mark.slow
def test_native_programs_run_from_the_toolchain_alone(toolchain: Callable[[str], Path]) -> None:
    programs = toolchain("llama_cpp").parents[1] / "llama.cpp"
    recipe = toolchains.get("llama_cpp").programs
    assert recipe is not None
    for name in recipe.targets:
        libraries = subprocess.run(["ldd", programs / "bin" / name], check=True, capture_output=True, text=True).stdout
        assert "not found" not in libraries and "/build/" not in libraries
    shown = subprocess.run([programs / "bin/llama-quantize", "--help"], capture_output=True, text=True, check=False)
    assert "Q4_K_M" in shown.stdout + shown.stderr
