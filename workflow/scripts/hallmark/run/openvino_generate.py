"""Text from an OpenVINO language model's folder: `python run.py "a question"`. Stands alone; takes the likeliest token.

Needs openvino-genai, and beside this file the model, the tokenizer and runtime.json that came with it: the settings
with which the model was measured. They choose the stateful model that was measured, not paged attention, which keeps
prompts in a cache.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import openvino_genai

SETTINGS = "runtime.json"


def generate(folder: Path, text: str, new_tokens: int, chat: bool) -> str:
    """The model's answer to `text`; `chat` wraps the text in the model's chat template, if it has one."""
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    pipeline = openvino_genai.LLMPipeline(
        folder, settings["device"], ATTENTION_BACKEND="SDPA", **settings["properties"]
    )
    how = pipeline.get_generation_config()
    how.do_sample, how.max_new_tokens, how.apply_chat_template = False, new_tokens, chat
    return str(pipeline.generate(text, how))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--new-tokens", type=int, default=64, help="at most so many tokens of answer (64)")
    parser.add_argument("--plain", action="store_true", help="continue the text; no chat template")
    given = parser.parse_args()
    print(generate(Path(__file__).resolve().parent, given.text, given.new_tokens, not given.plain))


if __name__ == "__main__":
    main()
