"""Generated files are what the config models say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from hallmark import gates, schema


@pytest.mark.parametrize("path", schema.generated(), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: object) -> None:
    for file, text in schema.generated().items():
        if file == path:
            assert file.read_text(encoding="utf-8") == text, "run: python -m hallmark.schema"


def test_every_option_has_a_description() -> None:
    for model in schema.SECTIONS.values():
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_the_schemas_refuse_unknown_keys() -> None:
    for name in ("config", "targets"):
        written = json.loads((schema.ROOT / f"workflow/schemas/{name}.schema.json").read_text(encoding="utf-8"))
        assert written["additionalProperties"] is False


def test_the_shipped_configurations_are_locked_and_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    from hallmark import planner

    monkeypatch.chdir(schema.ROOT)
    for name in ("config", "gemma"):
        raw = yaml.safe_load((schema.ROOT / f"config/{name}.yaml").read_text(encoding="utf-8"))
        assert planner.load(raw, f"config/{name}.yaml").artifacts


def test_the_second_configuration_has_the_limits_of_the_first() -> None:
    # The width of its matrices, and the tokens of single bytes in its vocabulary, are the second model's own.
    own = {("gguf", "other_type_share"), ("openvino", "tokenizer_control"), ("openvino", "tokenizer_numerals")}
    first, second = (
        yaml.safe_load((schema.ROOT / f"config/{name}.yaml").read_text(encoding="utf-8"))
        for name in ("targets", "gemma-targets")
    )

    def limits(targets: dict[str, Any], candidate: str) -> dict[str, Any]:
        found = gates.resolve(targets["policies"]["default"], "causal-lm", f"model/{candidate}")
        return {metric: limit for metric, (limit, _) in found.items() if (candidate.split("/")[0], metric) not in own}

    for candidate in {name for target in second["targets"].values() for name in target["candidates"]}:
        assert limits(first, candidate) == limits(second, candidate), candidate
