"""Native programs from a source distribution: built with cmake once, then used by every toolchain that names them.

Knows nothing of llama.cpp in particular: source, options and targets are data (`programs` in `toolchains.yaml`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hallmark import digest
from hallmark.once import made_once
from hallmark.packages import NO_CONSTRAINTS, registry_errors, run_uv
from hallmark.processes import run_tool, to_stderr, usable_cpus

READY = "ready.json"
KEY_LENGTH = 12
STEP = re.compile(r"\[(\d+)/(\d+)\] ")
# What a user may have set for other builds; it would change what is built without changing its key.
FOREIGN = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "CMAKE_GENERATOR", "CMAKE_BUILD_TYPE", "DESTDIR")

OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Recipe:
    """A build. `folder` is where the programs lie in a toolchain; `keep` is what to copy beside them from the source,
    `drop` patterns of what was built and is not to be used.

    `binding`, where the package is also a Python one that loads the libraries built here: environment variables to
    install it with, and under `library` the folder in site-packages where it looks for them.
    """

    folder: str
    package: str
    version: str
    sha256: str
    source: str
    options: Mapping[str, str]
    targets: tuple[str, ...]
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    binding: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The recipe as a JSON value, for the digest."""
        return asdict(self)

    def built(self, cache: Path, platform: Mapping[str, str]) -> Path:
        """Folder of the finished programs in a cache folder, whatever toolchain they are for."""
        decides = {name: value for name, value in self.as_json().items() if name not in ("folder", "binding")}
        where = {name: platform[name] for name in ("system", "machine", "libc")}
        return cache / "programs" / f"{self.package}-{digest.of_value([decides, where])[:KEY_LENGTH]}"


def install(recipe: Recipe, toolchain: Path, cache: Path, platform: Mapping[str, str], on_progress: OnProgress) -> None:
    """Put the programs into a toolchain's folder, building them first where no toolchain had them yet.

    The toolchain brings cmake, ninja, pip and the package's build backend. A build that was killed goes on where it
    stopped. Raises RuntimeError without a C++ compiler, ToolError when a step fails.
    """
    built = recipe.built(cache, platform)
    work = cache / "build" / built.name
    with made_once(built, lambda: (built / READY).is_file()) as needed:
        if needed:
            _build(recipe, toolchain, work, built, on_progress)
    (toolchain / recipe.folder).symlink_to(os.path.relpath(built, toolchain))
    if recipe.binding:
        _install_binding(recipe, toolchain, cache, built)


def _build(recipe: Recipe, toolchain: Path, work: Path, built: Path, on_progress: OnProgress) -> None:
    _need_compiler(recipe)
    source = _unpack(recipe, _fetch(recipe, toolchain, work), work) / recipe.source
    tree, env = work / "tree", _build_environment(toolchain)
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    options = dict(recipe.options) | {"CMAKE_BUILD_WITH_INSTALL_RPATH": "ON", "CMAKE_INSTALL_RPATH": origin}
    definitions = [f"-D{name}={value}" for name, value in options.items()]
    run_tool(["cmake", "-S", source, "-B", tree, "-G", "Ninja", *definitions], env=env)

    def follow(line: str) -> None:
        to_stderr(line)
        if step := STEP.match(line):
            on_progress(int(step[1]), int(step[2]), f"compile steps of {recipe.folder}")

    jobs = str(usable_cpus())
    run_tool(
        ["cmake", "--build", tree, "--parallel", jobs, "--target", *recipe.targets],
        env=env,
        on_line=follow,
        own_session=True,
    )
    _collect(recipe, source, tree, built)
    shutil.rmtree(work)


def _need_compiler(recipe: Recipe) -> None:
    names = [os.environ[name] for name in ("CXX",) if name in os.environ] or ["c++", "g++", "clang++"]
    if not any(shutil.which(name.split()[0]) for name in names):
        raise RuntimeError(
            f"{recipe.folder} is built from source and needs a C++ compiler, but {' or '.join(names)} cannot be found: "
            "install one (Debian, Ubuntu: apt-get install g++; macOS: xcode-select --install)"
        )


def _build_environment(toolchain: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    path = os.pathsep.join([str(toolchain / "bin"), os.environ.get("PATH", os.defpath)])
    return env | {"PATH": path, "NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C.UTF-8"}


def _fetch(recipe: Recipe, toolchain: Path, work: Path) -> Path:
    """The source distribution, by pip, which checks its sha256."""
    folder = work / "download"
    folder.mkdir(parents=True, exist_ok=True)
    pinned = folder / "pinned.txt"
    pinned.write_text(f"{recipe.package}=={recipe.version} --hash=sha256:{recipe.sha256}\n", encoding="utf-8")
    pip = (toolchain / "bin/python", "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    only = ("--no-deps", "--no-build-isolation", "--no-binary", recipe.package, "--require-hashes")
    with registry_errors():
        run_tool([*pip, *only, "--dest", folder, "--requirement", pinned], env=_build_environment(toolchain))
    return next(folder.glob("*.tar.gz"))


def _unpack(recipe: Recipe, archive: Path, work: Path) -> Path:
    """The unpacked source, kept from a killed build as it is: files with new times would be compiled again."""
    folder, whole = work / "source", work / "source.whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):  # not before Python 3.11.4
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(folder)  # whose sha256 is pinned
        whole.touch()
    return next(folder.iterdir())


def _collect(recipe: Recipe, source: Path, tree: Path, built: Path) -> None:
    """Copy what is kept out of the build folder, which goes away; `ready.json` last."""
    shutil.copytree(tree / "bin", built / "bin", symlinks=True, ignore=shutil.ignore_patterns(*recipe.drop))
    for name in recipe.keep:
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, built / name)
        else:
            shutil.copy2(source / name, built / name)
    facts = {"package": recipe.package, "version": recipe.version, "sha256": recipe.sha256}
    (built / READY).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _install_binding(recipe: Recipe, toolchain: Path, cache: Path, built: Path) -> None:
    """Install the package itself without its native part, and point it at the libraries built here."""
    variables = {name: value for name, value in recipe.binding.items() if name != "library"}
    variables["PATH"] = _build_environment(toolchain)["PATH"]
    pinned = toolchain / f"{recipe.package}.txt"
    pinned.write_text(f"{recipe.package}=={recipe.version} --hash=sha256:{recipe.sha256}\n", encoding="utf-8")
    run_uv(
        "pip", "install", "--python", toolchain / "bin/python", "--no-deps", "--no-build-isolation", "--require-hashes",
        "--no-binary", recipe.package, "--requirements", pinned,
        cache=cache / "uv", settings=variables | dict(NO_CONSTRAINTS),
    )  # fmt: skip
    site = next(toolchain.glob("lib/python*/site-packages"))
    library = site / recipe.binding["library"]
    if library.exists():
        shutil.rmtree(library)
    library.symlink_to(os.path.relpath(built / "bin", library.parent))
