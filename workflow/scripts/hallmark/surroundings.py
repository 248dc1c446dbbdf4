"""The variables and the home that a worker runs with: no user's settings reach what it makes. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hallmark.processes import usable_cpus

PACKAGES = Path(__file__).parents[1]
# Variables of Python and of the engines: they change how these read, convert, compute or log.
FOREIGN = (
    *("PYTHON", "VIRTUAL_ENV", "CONDA_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH", "PYTORCH_", "ATEN_", "ORT_"),
    *("OV_", "OPENVINO_", "NNCF_", "GGML_", "LLAMA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "RAYON_"),
    *("DNNL_", "ONEDNN_", "LD_PRELOAD", "LD_AUDIT", "MALLOC_", "GLIBC_TUNABLES", "BLIS_", "NUMEXPR_", "XNNPACK_"),
    *("LC_", "LANG", "TZ", "TMP", "TEMP", "XDG_", "CFLAGS", "CXXFLAGS", "LDFLAGS"),
)
FIXED: Mapping[str, str] = {
    "PYTHONPATH": str(PACKAGES),
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",  # else the log of a killed worker ends early
    "PYTHONUTF8": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "ORT_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    # A waiting thread pool must not spin: its threads would take the CPUs of the other engine, or of the other job.
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
}
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")


def worker_env(
    toolchain: Path, threads: int | None, scratch: Path, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a worker in the toolchain's folder, with `threads` (default: every usable CPU) for its pools.

    Its home and its folder for temporary files are made below `scratch`, which must last as long as it. Bytecode is
    written, whatever the user's PYTHONDONTWRITEBYTECODE says: without it each worker compiles its imports again.
    """
    env = {name: value for name, value in environ.items() if not name.startswith(FOREIGN)}
    limit = str(threads or usable_cpus())
    return {
        **env,
        **FIXED,
        **dict.fromkeys(THREAD_LIMITS, limit),
        "PATH": os.pathsep.join([str(toolchain / "bin"), environ.get("PATH", os.defpath)]),
        "HALLMARK_TOOLCHAIN": str(toolchain),
        "HOME": str(_home(scratch)),
        "TMPDIR": str(_folder(scratch / "tmp")),
    }


def _home(scratch: Path) -> Path:
    """An empty home, with the answer no for OpenVINO, which sends usage statistics unless a file there says so."""
    home = _folder(scratch / "home")
    (_folder(home / "intel") / "openvino_telemetry").write_text("0", encoding="utf-8")
    return home


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
