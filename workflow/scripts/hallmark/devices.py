"""Which devices this machine has, by name. It looks, and never assumes: no scheduler's word is taken for a device."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

KNOWN = {
    "cpu": "any CPU",
    "intel-cpu": "a CPU made by Intel",
    "nvidia-gpu": "an NVIDIA GPU with its driver loaded",
    "amd-gpu": "an AMD GPU with its compute driver loaded",
}

# Those that an engine of today's formats computes on. On the others nothing is measured, whatever the machine has.
MEASURED = ("cpu", "intel-cpu")


def measured(device: str) -> bool:
    """Whether what is measured here holds for the device: it is present, and the engines run on it."""
    return device in MEASURED and present(device)


@cache
def present(device: str) -> bool:
    """Whether the machine this runs on has the device. Raises KeyError for a name not in KNOWN."""
    match device:
        case "cpu":
            return True
        case "intel-cpu":
            return "GenuineIntel" in _cpuinfo()
        case "nvidia-gpu":
            return any(Path("/proc/driver/nvidia/gpus").glob("*"))
        case "amd-gpu":
            return Path("/dev/kfd").exists()
    raise KeyError(device)


@cache
def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@cache
def instructions() -> str:
    """The instruction set, as far as it changes what integer and half-precision kernels compute."""
    flags = next((line.split() for line in _cpuinfo().splitlines() if line.startswith(("flags", "Features"))), [])
    known = (
        "avx2",
        "avx_vnni",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "amx_int8",
        "amx_bf16",
        "asimddp",
        "i8mm",
        "sve",
    )
    return " ".join([platform.machine(), *(name for name in known if name in flags)])


@cache
def hardware_class(cpus: int) -> str:
    """A name for this kind of machine, for the keys of speed measurements: CPU model and the CPUs a job may use."""
    models = [line.partition(":")[2] for line in _cpuinfo().splitlines() if line.startswith("model name")]
    model = " ".join(models[0].split()) if models else platform.machine()
    return f"{model}, {cpus} CPUs, {instructions()}"
