"""Tests use the product's public names, so that they survive a change of what is behind these."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py"))
ALLOWED = {
    "tests/broker/raw_batch.py": {"_builder", "_relative_offset"},  # aiokafka's: it offers no way to send such a batch
    "tests/comparison/test_bounds.py": {"_windows", "_events"},  # no result shows what the join keeps in memory
    "tests/demo/test_spike_workers.py": {"_policy"},  # the simulated `millstream run` decides as the real one
    "tests/inference/test_signature.py": {"_fill_scalars"},  # counts the messages that it makes
}
"""Private names that a test can't do without."""
BY_NAME = {"delattr", "getattr", "hasattr", "patch", "replace", "setattr"}
"""Functions that are told the name of an attribute."""
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""Public, though they begin so."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_") and name not in NAMED_TUPLES


def private_names(tree: ast.AST, product: frozenset[str] = frozenset(), *, own: bool = False) -> Iterator[str]:
    """Each private name that is imported from the product, looked up or replaced, with its line.

    Args:
        tree: a file, or a part of it.
        product: names that the file imports from the product.
        own: whether the part is of a class of the tests' own, whose `self` may have what it likes. One that is derived from a
            class of the product may not: the two share their attributes.
    """
    for node in ast.iter_child_nodes(tree):
        found: list[str] = []
        inside = own
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("millstream"):
                found = [alias.name for alias in node.names]
                product |= {alias.asname or alias.name for alias in node.names}
            case ast.ClassDef():
                bases = {name.id for base in node.bases for name in ast.walk(base) if isinstance(name, ast.Name)}
                inside = not bases & product
                found = [] if inside else [entry.name for entry in node.body if isinstance(entry, ast.FunctionDef)]
            case ast.Attribute() if ast.unparse(node.value) not in {
                "KafkaError",
                *(("self", "super()") if own else ()),
            }:
                found = [node.attr]
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called in BY_NAME:
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                found = [text.rpartition(".")[2] for text in texts]
        yield from (f"{getattr(node, 'lineno', 0)}: {name}" for name in found if is_private(name))
        yield from private_names(node, product, own=inside)


@pytest.mark.parametrize("file", FILES)
def test_private_names_of_the_product_are_left_alone(file: str) -> None:
    found = list(private_names(ast.parse((ROOT / file).read_text(encoding="utf-8"), file)))
    allowed = ALLOWED.get(file, set())
    assert [line for line in found if line.rpartition(" ")[2] not in allowed] == []
    assert {line.rpartition(" ")[2] for line in found} == allowed


@pytest.mark.parametrize(
    "line",
    [
        "sink._step()",
        "def init(self: Sink) -> None: self._open = False",
        "class Buggy(Sink):\n def start(self): self._open = False",
        "class Buggy(Sink):\n def _step(self): ...",
        "from millstream.consumers.sink import _step",
        "monkeypatch.setattr(Sink, '_step', None)",
        "patch('millstream.consumers.sink.Sink._step')",
        "class Own:\n def stop(self, sink): sink._step()",
    ],
)
def test_rule_sees_private_names(line: str) -> None:
    assert len(list(private_names(ast.parse(f"from millstream.sink import Sink\n{line}")))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "class Own:\n def stop(self): self._open = False",
        "class Own(Other):\n def _stop(self): super()._stop()",
        "class Buggy(Sink):\n def start(self): super().start()",
        "Sink.__init__ = None",
        "code = KafkaError._TIMED_OUT",
        "setattr(Sink, 'start', None)",
        "event._replace(row=1)",
    ],
)
def test_rule_allows_the_rest(line: str) -> None:
    assert list(private_names(ast.parse(f"from millstream.sink import Sink\n{line}"))) == []
