"""Asks a checkpoint labelled questions with lm-evaluation-harness's own runner of transformers models (`HFLM`).

Usage: harness_alone.py CHECKPOINT QUESTIONS, where the packages of the toolchains `torch` and `lm_eval` are importable.
Prints what `hallmark.harness.evaluate` returns, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path


def main(checkpoint: str, questions: str) -> None:
    from lm_eval.models.huggingface import HFLM

    from hallmark import harness

    with contextlib.redirect_stdout(sys.stderr):
        model = HFLM(pretrained=checkpoint, device="cpu", dtype="float32", batch_size=1)
        found = harness.evaluate(model, Path(questions))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
