"""Rotary frequencies: those that a config.json asks for, and those found in a graph's constants. Runs nothing.

Source of the formulas: transformers/modeling_rope_utils.py (default, linear, llama3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hallmark import source_settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TOLERANCE = 2e-3  # of a frequency; tables may be float16
DRIFT = 2.0**-22  # of an angle, for each position: float32 has 24 bits
ROWS = 4096  # positions compared at once


def expected(config: Mapping[str, Any]) -> list[Floats]:
    """The frequencies of each kind of layer; [] where the config names no rotary settings or a kind not known here."""
    import numpy as np

    rope, shape = source_settings.rope(config), source_settings.shape(config)
    told = source_settings.text_config(config)
    settings = told.get("rope_parameters") or told.get("rope_scaling") or {}
    settings = settings.get("full_attention", settings)
    if not rope or "head_dim" not in shape or rope["type"] not in ("default", "linear", "llama3"):
        return []
    size = int(shape["head_dim"] * (told.get("partial_rotary_factor") or settings.get("partial_rotary_factor") or 1.0))

    def plain(base: float) -> Floats:
        return np.asarray(base ** (-np.arange(0, size, 2) / size), np.float64)

    frequencies = plain(rope["base"])
    if rope["type"] == "linear":
        frequencies = frequencies / rope["factor"]
    if rope["type"] == "llama3":
        frequencies = _llama3(frequencies, settings)
    return [frequencies, *([plain(rope["local_base"])] if "local_base" in rope else [])]


def _llama3(frequencies: Floats, settings: Mapping[str, Any]) -> Floats:
    """Low frequencies divided by a factor, high ones kept, and a passage between."""
    import numpy as np

    factor, context = settings["factor"], settings["original_max_position_embeddings"]
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    smooth = np.clip((context * frequencies / (2 * math.pi) - low) / (high - low), 0, 1)
    return np.asarray((1 - smooth) * frequencies / factor + smooth * frequencies)


def differences(found: Iterable[tuple[str, Floats]], config: Mapping[str, Any]) -> list[str]:
    """Found frequencies that are none of those asked for, named by where they were found."""
    wanted = expected(config)
    return [
        f"{name}: frequencies {_short(values)}, the source asks for {_short(wanted[0])}"
        for name, values in found
        if wanted and not any(_is_same(values, frequencies) for frequencies in wanted)
    ]


def spoilt(tables: Iterable[tuple[str, str, Floats]], config: Mapping[str, Any]) -> list[str]:
    """Tables of cosines or sines (name, `cos` or `sin`, positions x frequencies) that are not the source's, and where.

    Their positions come from float32 products, so the tolerance grows with them.
    """
    import numpy as np

    found = []
    for name, function, values in tables:
        firsts = [_first_wrong(np.asarray(values), getattr(np, function), wanted) for wanted in expected(config)]
        if firsts and None not in firsts:
            found.append(
                f"{name}: the {function} of position {max(filter(None, firsts), default=0)} is not the source's"
            )
    return found


def _first_wrong(values: Floats, function: Any, frequencies: Floats) -> int | None:
    """The first position of a table that is wrong, None where all are right."""
    import numpy as np

    if values.shape[1:] != frequencies.shape:
        return 0
    for start in range(0, len(values), ROWS):
        positions = np.arange(start, min(start + ROWS, len(values)))[:, None]
        off = np.abs(values[start : start + ROWS] - function(positions * frequencies)) > TOLERANCE + DRIFT * positions
        if not np.isfinite(values[start : start + ROWS]).all() or off.any():
            return int(start + off.any(axis=1).argmax())
    return None


def _is_same(first: Floats, second: Floats) -> bool:
    import numpy as np

    return first.shape == second.shape and bool(np.allclose(first, second, rtol=TOLERANCE, atol=1e-7))


def looks_like_frequencies(values: Floats, count: int) -> bool:
    """Whether numbers fall by the same factor from 1 or less, as frequencies do that are all scaled alike."""
    import numpy as np

    if values.shape != (count,) or count < 3 or values[0] > 1 or not (values > 0).all():
        return False
    steps = np.diff(np.log(values))
    return bool(steps[0] < 0 and np.allclose(steps, steps[0], rtol=0.05))


def _short(values: Floats) -> str:
    return ", ".join(f"{value:.4g}" for value in (*values[:3], values[-1])) + f" ({len(values)})"
