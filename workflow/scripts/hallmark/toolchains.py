"""Toolchains: which there are, what decides each, and how one is made in the cache folder. Runs no job in one.

A toolchain is a locked Python environment, for most with torch by version and build, and for some with native programs.
They are data, in `workflow/envs/toolchains.yaml`. The digest of that data is in the key of all that a toolchain makes.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import platformdirs
import yaml

from hallmark import digest, native
from hallmark.once import made_once
from hallmark.packages import NO_CONSTRAINTS, run_uv
from hallmark.processes import ToolError

ENVS = Path(__file__).parents[2] / "envs"
MADE = "toolchain.json"
KEY_LENGTH = 12
OLDEST_PYTHON = "3.11"

OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Toolchain:
    """What a toolchain is made of, and where it is or will be.

    `lock` is a file in workflow/envs; `torch_build` is `cpu` or a CUDA version as uv writes it (`cu130`). `torch` is a
    version, or None where it is not needed.
    """

    name: str
    torch_build: str
    cache: Path
    lock: str
    torch: str | None
    programs: native.Recipe | None

    @cached_property
    def digest(self) -> str:
        """sha256 of all that decides this toolchain, and nothing of the machine it is made on."""
        return digest.of_value(
            {
                "lock": normalised((ENVS / self.lock).read_text(encoding="utf-8")),
                "torch": [self.torch, self.torch_build] if self.torch else None,
                "programs": self.programs.as_json() if self.programs else None,
            }
        )

    @cached_property
    def folder(self) -> Path:
        """Below the cache folder, under a key of the digest and of the platform."""
        key = digest.of_value([self.digest, local_platform()])[:KEY_LENGTH]
        return self.cache / "toolchains" / f"{self.name}-{key}"

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def ready(self) -> Path:
        """The file that a rule makes: what the toolchain holds, as JSON."""
        return self.folder / "ready.json"

    @property
    def made(self) -> bool:
        """Whether it is complete. Not the same as `ready`, which Snakemake removes before it runs the rule for it."""
        # A program in it may be a link into the cache's other folder, which somebody may have cleaned.
        return (self.folder / MADE).is_file() and all(path.exists() for path in self.folder.iterdir())


def all_toolchains() -> tuple[str, ...]:
    """Every toolchain that `toolchains.yaml` describes, by name."""
    return tuple(sorted(_described()))


@cache
def _described() -> Mapping[str, Mapping[str, Any]]:
    described: dict[str, dict[str, Any]] = yaml.safe_load((ENVS / "toolchains.yaml").read_text(encoding="utf-8"))
    return described


def get(name: str, torch_build: str = "cpu") -> Toolchain:
    """A toolchain by name. Raises KeyError, naming what there is, when there is none of that name."""
    if name not in _described():
        raise KeyError(f"no toolchain {name!r}, have {', '.join(all_toolchains())}")
    entry = _described()[name]
    programs = native.Recipe(**entry["programs"]) if "programs" in entry else None
    return Toolchain(name, torch_build, cache_folder(), entry["lock"], entry.get("torch"), programs)


def normalised(lock: str) -> list[str]:
    """A lock's requirements, one a line with its hashes, sorted; without comments, which decide nothing."""
    text = re.sub(r"(^|\s)#.*", "", lock).replace("\\\n", " ")
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


def cache_folder() -> Path:
    """Where toolchains are kept for all checkouts: $HALLMARK_CACHE, else the user's cache folder."""
    chosen = os.environ.get("HALLMARK_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("hallmark")


def local_platform() -> dict[str, str]:
    """What an environment, once made, depends on: a cache folder may be shared by machines where these differ."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": "-".join(platform.libc_ver()),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "base": sys.base_prefix,
    }


def make(name: str, torch_build: str = "cpu", on_progress: OnProgress = lambda *_: None) -> Toolchain:
    """Make a toolchain unless it is there, and return it.

    Safe against other checkouts that make the same one, and against being killed: the file that says it is complete is
    written last, and a folder without it is removed first. Raises packages.Unreachable without network, ToolError when
    a step fails, RuntimeError without a compiler where there is something to compile.
    """
    toolchain = get(name, torch_build)
    with made_once(toolchain.folder, lambda: toolchain.made) as needed:
        if needed:
            _make(toolchain, on_progress)
    if not toolchain.ready.exists():
        shutil.copyfile(toolchain.folder / MADE, toolchain.ready)
    return toolchain


def _make(toolchain: Toolchain, on_progress: OnProgress) -> None:
    def step(done: int, doing: str) -> None:
        on_progress(done, 3, f"steps of toolchain {toolchain.name}: {doing}")

    uv_cache = toolchain.cache / "uv"
    step(0, "Python packages")
    run_uv("venv", "--python", sys.executable, toolchain.folder, cache=uv_cache)
    into = ("pip", "install", "--python", toolchain.python)
    exact = ("--no-deps", "--require-hashes", "--requirements", ENVS / toolchain.lock)
    run_uv(*into, *exact, cache=uv_cache, settings=NO_CONSTRAINTS)
    if toolchain.torch:
        step(1, f"torch {toolchain.torch} ({toolchain.torch_build})")
        _install_torch(toolchain, *into, "--constraint", ENVS / toolchain.lock)
    if toolchain.programs:
        step(2, toolchain.programs.folder)
        native.install(toolchain.programs, toolchain.folder, toolchain.cache, local_platform(), on_progress)
    _write_made(toolchain)
    step(3, "done")


def _install_torch(toolchain: Toolchain, *install: str | os.PathLike[str]) -> None:
    """torch from what pip's settings name, where that has the build, else from its makers' index of that build."""
    version, build, uv_cache = toolchain.torch, toolchain.torch_build, toolchain.cache / "uv"
    try:
        run_uv(*install, f"torch=={version}+{build}", cache=uv_cache)
    except ToolError:
        run_uv(*install, f"torch=={version}", "--torch-backend", build, cache=uv_cache)


def _write_made(toolchain: Toolchain) -> None:
    listed = ("pip", "list", "--quiet", "--format", "json", "--python", toolchain.python)
    packages = json.loads(run_uv(*listed, cache=toolchain.cache / "uv", on_line=lambda _: None))
    facts = {
        "name": toolchain.name,
        "digest": toolchain.digest,
        "platform": local_platform(),
        "packages": {package["name"]: package["version"] for package in packages},
    }
    part = toolchain.folder / f"{MADE}.part"
    part.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    part.rename(toolchain.folder / MADE)


def relock(name: str) -> bool:
    """Resolve `<name>.in` anew into its lock, for every platform; True when the lock is another than before.

    Versions that still fit stay as they are; remove the lock to take the newest. The file holds no address. Only pip's
    index counts: what further indexes or folders of wheels hold here may lack files, and so hashes, for other machines.
    """
    lock = ENVS / get(name).lock
    before = lock.read_text(encoding="utf-8") if lock.exists() else ""
    everywhere = ("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes")
    run_uv(
        *("pip", "compile", "--quiet", "--no-header", "--no-annotate", *everywhere),
        *("--excludes", ENVS / "excluded.txt", ENVS / f"{name}.in", "--output-file", lock),
        cache=cache_folder() / "uv",
        settings={**NO_CONSTRAINTS, "UV_INDEX": "", "UV_FIND_LINKS": ""},
        on_line=lambda _: None,
    )
    return normalised(before) != normalised(lock.read_text(encoding="utf-8"))
