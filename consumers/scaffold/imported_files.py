"""Finds what a model.py needs of what lies beside it: modules that it imports, files that it names. It doesn't run it."""

import ast
from collections.abc import Iterator
from pathlib import Path


def imported_beside(model: Path) -> list[Path]:
    """The files and folders beside `model` that its import statements name; none if it isn't valid Python."""
    names = {name.partition(".")[0] for node in _nodes(model) for name in _names(node)}
    places = [model.parent / form for name in sorted(names) for form in (name, f"{name}.py")]
    return [place for place in places if place != model and (place.is_file() if place.suffix else place.is_dir())]


def named_beside(model: Path) -> list[Path]:
    """The other files beside `model` whose names stand in it as texts, such as one that it loads; none as above."""
    texts = {node.value for node in _nodes(model) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return [
        place for place in sorted(model.parent.iterdir()) if place.name in texts and place.is_file() and place != model
    ]


def _nodes(model: Path) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(model.read_bytes())))
    except (SyntaxError, ValueError, RecursionError):  # `check` names the error
        return []


def _names(node: ast.AST) -> Iterator[str]:
    """What an import statement names: modules, perhaps with dots inside."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str(module)):
            yield module
        case ast.ImportFrom():  # from . import names
            yield from (alias.name for alias in node.names)
