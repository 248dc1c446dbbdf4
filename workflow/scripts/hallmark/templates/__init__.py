"""The texts that people read, as templates, and how they are filled. Decides nothing of what is in them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from hallmark import digest, quantities


def render(name: str, **values: Any) -> str:
    """Fill a template of this folder. A value that it names and does not get is an error; HTML is escaped."""
    return _environment().get_template(name).render(**values)


def digest_of(*names: str) -> str:
    """Digest of templates of this folder, for the keys of what is written with them."""
    folder = Path(__file__).parent
    return digest.of_value({name: digest.of_file(folder / name) for name in names})


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "size": quantities.size,
        "duration": quantities.duration,
        "cell": _cell,
        "json": _json,
    }
    return environment


def _cell(text: object) -> str:
    """Text for a cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
