"""Which modules of the library a function can reach, by its syntax: names that it uses, and so on from there.

It follows names and attributes of imported modules, also those imported inside a function, and leaves annotations out.
What is looked up by a string (an adapter, a task, a worker's action) is not followed: those are roots of their own.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

LIBRARY = "hallmark"
Place = tuple[str, str]  # module, and a name in it; '' for the module as such
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def imported(tree: ast.AST) -> dict[str, Place]:
    """The library's modules and their names that are imported anywhere below a node, by the name they get."""
    found: dict[str, Place] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == LIBRARY:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                found[name.asname or name.name] = (full, "") if is_module(full) else (str(node.module), name.name)
    return found


@cache
def parsed(module: str) -> tuple[dict[str, ast.stmt], dict[str, Place]]:
    """What a module defines, by name, and what it imports at its top level or for its annotations."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, FUNCTION | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
            defined.update(dict.fromkeys(names, node))
    top = ast.Module([node for node in tree.body if not isinstance(node, FUNCTION | ast.ClassDef)], [])
    return defined, imported(top)


def used(node: ast.AST) -> Iterator[Place]:
    """Names that code uses, each with the attribute that is taken of it, or ''."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, node.attr
    elif isinstance(node, ast.Name):
        yield node.id, ""
    else:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from used(child)


def modules(roots: Iterable[Place]) -> set[str]:
    """The library's modules in which something is reached from the roots (module, name)."""
    seen: set[Place] = set()
    todo = list(roots)
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        module, name = place
        defined, imports = parsed(module)
        if name in defined:
            known = {**imports, **imported(defined[name])}
            local = imported(defined[name])
            for used_name, attribute in used(defined[name]):
                if used_name in defined and used_name not in local:
                    todo.append((module, used_name))
                elif used_name in known:
                    source, part = known[used_name]
                    todo.append((source, part or attribute))
        elif name in imports:
            todo.append(imports[name])
    return {module for module, _ in seen}
