"""uv, run with the settings that pip has on this machine. It does not decide what is installed or where.

Whoever has set pip up for their network (index, mirror, certificates, a folder of wheels) need not set uv up as well.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uv

from hallmark.processes import ToolError, run_tool, to_stderr

# pip's option -> uv's variable, and what separates the values of a list there (None: a single value).
UV_VARIABLES: Mapping[str, tuple[str, str | None]] = {
    "index-url": ("UV_DEFAULT_INDEX", None),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", None),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", None),
    "cert": ("SSL_CERT_FILE", None),
    "client-cert": ("SSL_CLIENT_CERT", None),
    "proxy": ("ALL_PROXY", None),
}
RANKS = ("global", "install", ":env:")  # where pip finds a setting, weakest first
UNREACHABLE = (
    "error sending request",
    "operation timed out",
    "NewConnectionError",
    "NameResolutionError",
    "ReadTimeout",
)
# pip's constraints say nothing where every version is pinned, and uv refuses them beside hashes.
NO_CONSTRAINTS: Mapping[str, str] = {"UV_CONSTRAINT": ""}


class Unreachable(RuntimeError):
    """The package registry gave no answer, so nothing could be installed."""


def run_uv(
    *argv: str | os.PathLike[str],
    cache: Path,
    settings: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = to_stderr,
) -> str:
    """Run `uv` with pip's settings, its cache in the folder `cache`, and return what it printed.

    Raises Unreachable without network and ToolError for every other failure. `settings` come on top of pip's.
    """
    env = dict(os.environ) | uv_settings() | {"UV_CACHE_DIR": str(cache)} | dict(settings or {})
    env |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never"}
    env.pop("VIRTUAL_ENV", None)
    with registry_errors():
        return run_tool([uv.find_uv_bin(), *argv], env=env, on_line=on_line)


@contextmanager
def registry_errors() -> Iterator[None]:
    """Turn the ToolError of a uv or pip that had no network into Unreachable, which says what to do."""
    try:
        yield
    except ToolError as error:
        if not any(sign in error.tail for sign in UNREACHABLE):
            raise
        raise Unreachable(
            f"{error.tail}\nThe package registry cannot be reached. Connect this machine, or name a mirror or a folder "
            "of wheels in pip's settings (pip config set global.index-url …, global.find-links …); uv takes them over."
        ) from error


def uv_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """uv's variables that say what pip's settings say; a variable that is already set keeps its value.

    With more than one index uv would take a package from the first that has it; pip takes the best version of all, and
    so does what is run with these settings.
    """
    found = translate(pip_settings(environ))
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in found.items() if not environ.get(name)}


def translate(settings: Mapping[str, str]) -> dict[str, str]:
    """pip's settings (`global.index-url`, `:env:.cert`, …) as uv's variables."""
    found = {}
    for rank in RANKS:
        for option, (variable, separator) in UV_VARIABLES.items():
            value = settings.get(f"{rank}.{option}") or settings.get(f"{rank}.default-{option}")
            if value:
                found[variable] = value.strip() if separator is None else separator.join(value.split())
    return found


def pip_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What `pip config list` says, which includes PIP_* variables; those variables alone where there is no pip."""
    if importlib.util.find_spec("pip") is None:
        names = ((name, name.removeprefix("PIP_").lower().replace("_", "-")) for name in environ if name[:4] == "PIP_")
        return {f":env:.{option}": environ[name] for name, option in names}
    argv = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    listing = subprocess.run(argv, env=dict(environ), capture_output=True, text=True, check=False).stdout
    return parse_listing(listing)


def parse_listing(listing: str) -> dict[str, str]:
    """The lines `global.find-links='/wheels'` of `pip config list`."""
    pairs = (line.partition("=") for line in listing.splitlines() if "='" in line or '="' in line)
    return {name: str(ast.literal_eval(value)) for name, _, value in pairs}
