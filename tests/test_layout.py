"""The rules that keep the tree what docs/architecture.md says it is."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from millstream.consumers.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "schemas": set[str](),
    "topics": {"schemas"},
    "inference": {"schemas"},
    "consumers": {"inference", "schemas", "topics"},
}
"""Package -> our other packages that it may import."""
KNOW_KAFKA = {
    "consumers/source.py",
    "consumers/starts.py",
    "consumers/client_handle.py",
    "consumers/fetched.py",
    "consumers/reader.py",
    "consumers/bulk.py",
    "consumers/delivery.py",
    "consumers/transactions.py",
    "topics/admin.py",
    "topics/client_trial.py",
    "topics/group.py",
    "topics/lag.py",
    "topics/embedded.py",
    "topics/records.py",
    "topics/dead_letter_reader.py",
    "topics/replay.py",
}
READ_ENVIRONMENT = (
    "consumers/cli/",
    "consumers/demo/",
    "inference/__init__.py",  # these set one each, for a library that reads nothing else
    "schemas/__init__.py",
)
MOST_LINES = 400

FILES = sorted(
    path.relative_to(ROOT).as_posix() for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py")
)  # fmt: skip


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), file)


def imported(file: str) -> Iterator[tuple[str, int]]:
    """Each module that a file imports, anywhere in it, and the line."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: write the whole name of what is imported"
            yield node.module or "", node.lineno


def test_packages_are_there() -> None:
    assert len(FILES) > 30
    assert {file.split("/")[0] for file in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    others = MAY_IMPORT.keys() - {package} - MAY_IMPORT[package]
    wrong = [
        f"{file}:{line} imports {name}"
        for file in FILES
        if file.startswith(f"{package}/")
        for name, line in imported(file)
        if name.split(".")[0] in {"tests", "benchmarks", "examples", *MAY_IMPORT}
        or (name.startswith("millstream.") and name.split(".")[1] in others)
    ]
    assert wrong == []


def test_only_the_modules_at_kafkas_border_import_its_client() -> None:
    found = {file for file in FILES for name, _ in imported(file) if name.split(".")[0] == "confluent_kafka"}
    assert found - KNOW_KAFKA == set()


@pytest.mark.parametrize("file", FILES)
def test_file_holds_one_thing(file: str) -> None:
    lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{file} has {lines} lines: two things live in it"


@pytest.mark.parametrize("file", FILES)
def test_module_says_what_it_holds(file: str) -> None:
    assert ast.get_docstring(tree(file)), f"{file} has no docstring"


def test_only_the_edges_read_the_environment() -> None:
    """Others take it as an argument; `os` as a whole is imported for files and processes."""
    wrong = [
        f"{file}:{node.lineno}"
        for file in FILES
        if not file.startswith(READ_ENVIRONMENT)
        for node in ast.walk(tree(file))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.environb", "os.getenv"})
        or (isinstance(node, ast.ImportFrom) and node.module == "os")
    ]
    assert wrong == []


def test_no_name_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
    assert [file for file in FILES if empty & set(Path(file).with_suffix("").parts)] == []


def test_no_text_tells_to_install_what_no_index_has() -> None:
    """Millstream is used from a checkout."""
    pages = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")]
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in (*FILES, *pages, "README.md")}
    assert [file for file, text in texts.items() if "pip install 'millstream" in text] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_a_module(command: str) -> None:
    functions = {
        node.name
        for node in tree(f"consumers/cli/{command.replace('-', '_')}.py").body
        if isinstance(node, ast.FunctionDef)
    }
    assert {"add_arguments", "run"} <= functions
