"""Finds the files and packages beside a model.py that it imports. It doesn't run them."""

import ast
from collections.abc import Iterator
from pathlib import Path


def imported_beside(model: Path) -> list[Path]:
    """The files and folders beside `model` that its import statements name; none if it isn't valid Python."""
    try:
        tree = ast.parse(model.read_bytes())
    except (SyntaxError, ValueError, RecursionError):  # `check` names the error
        return []
    names = {name.partition(".")[0] for node in ast.walk(tree) for name in _names(node)}
    places = [model.parent / form for name in sorted(names) for form in (name, f"{name}.py")]
    return [place for place in places if place != model and (place.is_file() if place.suffix else place.is_dir())]


def _names(node: ast.AST) -> Iterator[str]:
    """What an import statement names: modules, perhaps with dots inside."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str(module)):
            yield module
        case ast.ImportFrom():  # from . import names
            yield from (alias.name for alias in node.names)
