"""What is generated from the config models: JSON schemas for editors, and the tables in `config/README.md`,
`docs/gates.md` and `docs/lint.md`.

`python -m hallmark.schema` writes them; a test fails when they are not what the models say. It validates nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hallmark import config, sources, tasks
from hallmark.lint import findings

ROOT = Path(__file__).parents[3]
SECTIONS: Mapping[str, type[BaseModel]] = {
    "config": config.Config,
    "model": config.Model,
    "variant": config.VariantChoice,
    "loadgen": config.LoadGen,
    "single_stream": config.SingleStream,
    "server": config.Server,
    "offline": config.Offline,
    "data": config.Dataset,
    "target": config.Target,
    "release": config.Release,
    "hub": sources.Hub,
    "path": sources.Path,
    "package": sources.Package,
    "gguf": sources.Gguf,
}


def generated() -> dict[Path, str]:
    """Every generated file with the text it should have."""
    pages = (ROOT / name for name in ("config/README.md", "docs/gates.md", "docs/lint.md"))
    return {
        ROOT / "workflow/schemas/config.schema.json": _schema(config.Config),
        ROOT / "workflow/schemas/targets.schema.json": _schema(config.Targets),
        **{page: fill(page.read_text(encoding="utf-8")) for page in pages},
    }


def _schema(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), indent=1) + "\n"


def fill(text: str) -> str:
    """The text with a table between each `<!-- table NAME -->`, `<!-- metrics TASK -->` or `<!-- lint SUBJECT -->` and
    `<!-- end -->`."""

    def table(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        if kind == "metrics":
            rows = _metrics(name)
        elif kind == "lint":
            rows = _codes(name)
        else:
            rows = _fields(SECTIONS[name]) if name in SECTIONS else _measuring(name)
        return f"<!-- {kind} {name} -->\n{rows}\n<!-- end -->"

    return re.sub(r"<!-- (table|metrics|lint) ([\w-]+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


def _metrics(task: str) -> str:
    rows = [f"| metric of `{task}` | unit | better | from | meaning |", "|---|---|---|---|---|"]
    rows += [
        f"| `{name}` | {metric.unit} | {metric.better} | {metric.source} | {metric.meaning} |"
        for name, metric in tasks.metrics(task).items()
    ]
    return "\n".join(rows)


def _codes(subject: str) -> str:
    rows = ["| code | level | what is wrong | what to do |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {code.level} | {code.meaning} | {code.remedy} |"
        for name, code in findings.SUBJECTS[subject].items()
    ]
    return "\n".join(rows)


def _fields(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _shown(schema["properties"][name].get("default", "empty"))
        rows.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(rows)


def _shown(value: Any) -> str:
    return "none" if value is None else f"`{json.dumps(value)}`" if value != "empty" else "empty"


def _measuring(task: str) -> str:
    rows = ["| option | default | meaning |", "|---|---|---|"]
    rows += [
        f"| `{name}` | `{option.default}` | {option.meaning} |" for name, option in tasks.get(task).OPTIONS.items()
    ]
    return "\n".join(rows)


def main() -> None:
    """Write every generated file."""
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
