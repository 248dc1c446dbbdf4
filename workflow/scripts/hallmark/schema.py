"""What is generated from the config models and the registries: JSON schemas for editors, and the tables in
`config/README.md` and of `docs/`.

`python -m hallmark.schema` writes them; a test fails when they are not what the models say. It validates nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel

from hallmark import cli, config, datasets, formats, sources, tasks
from hallmark.lint import findings
from hallmark.options import Setting

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
    pages = (ROOT / name for name in ("config/README.md", "docs/gates.md", "docs/lint.md", "docs/operating.md"))
    return {
        ROOT / "workflow/schemas/config.schema.json": _schema(config.Config),
        ROOT / "workflow/schemas/targets.schema.json": _schema(config.Targets),
        **{page: fill(page.read_text(encoding="utf-8")) for page in pages},
    }


def _schema(model: type[BaseModel]) -> str:
    return json.dumps(model.model_json_schema(), indent=1) + "\n"


def fill(text: str) -> str:
    """The text with a table between each `<!-- KIND NAME -->` and `<!-- end -->`, for the kinds of TABLES."""

    def table(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        return f"<!-- {kind} {name} -->\n{TABLES[kind](name)}\n<!-- end -->"

    return re.sub(rf"<!-- ({'|'.join(TABLES)}) ([\w-]+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


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


def _fields(section: str) -> str:
    model = SECTIONS[section]
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


def _variants(format_name: str) -> str:
    spec = formats.spec(format_name)
    rows = ["| variant | for | options that may be set, with their defaults |", "|---|---|---|"]
    for name, variant in spec.variants.items():
        if not variant.intermediate:
            options = ", ".join(f"`{option}: {_plain(value)}`" for option, value in spec.options_of(variant).items())
            rows.append(f"| `{name}` | {', '.join(spec.tasks_of(variant))} | {options or 'none'} |")
    return "\n".join(rows)


def _options(format_name: str) -> str:
    rows = ["| option | meaning | values |", "|---|---|---|"]
    rows += [
        f"| `{name}` | {setting.meaning} | {_values(setting)} |"
        for name, setting in formats.spec(format_name).settings.items()
    ]
    return "\n".join(rows)


def _readers(_: str) -> str:
    rows = ["| reader | option | default | meaning | values |", "|---|---|---|---|---|"]
    for name, reader in datasets.READERS.items():
        rows.append(f"| `{name}` | | | {reader.about} | |")
        for option, default in reader.options.items():
            setting = reader.settings[option]
            rows.append(f"| | `{option}` | `{_plain(default)}` | {setting.meaning} | {_values(setting)} |")
    return "\n".join(rows)


def _values(setting: Setting) -> str:
    least = "" if setting.least is None else f"{setting.least:g} or more"
    return ", ".join(f"`{_plain(value)}`" for value in setting.values) or least


def _commands(_: str) -> str:
    rows = ["| command | what it does |", "|---|---|"]
    known: Any = typer.main.get_command(cli.app)
    for name, command in known.commands.items():
        words = [
            f"[{parameter.opts[0]}]" if parameter.param_type_name == "option" else parameter.name.upper()
            for parameter in command.params
        ]
        rows.append(f"| `{' '.join(['hallmark', name, *words])}` | {' '.join(command.help.split())} |")
    return "\n".join(rows)


def _plain(value: Any) -> str:
    """A value as it is written in YAML."""
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value)


TABLES: Mapping[str, Callable[[str], str]] = {
    "table": _fields,
    "measuring": _measuring,
    "metrics": _metrics,
    "lint": _codes,
    "variants": _variants,
    "options": _options,
    "readers": _readers,
    "commands": _commands,
}


def main() -> None:
    """Write every generated file."""
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
