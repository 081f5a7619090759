"""The rules that keep the tree what docs/architecture.md says it is."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from millstream.consumers.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "schemas": set[str](),
    "pipeline": {"schemas"},
    "topics": {"pipeline", "schemas"},
    "inference": {"schemas"},
    "consumers": {"inference", "pipeline", "schemas", "topics"},
}
"""Package -> our other packages that it may import."""
STAGES = ("source", "decode", "batch", "execute", "sink")
"""The rooms of an event's path, in its order: none imports another."""
SHARED = {"", "flow", "models", "observability", "resilience"}
"""Rooms of `consumers` that the stages share; "" stands for the modules directly in `consumers`."""
ROOMS = {
    "": set[str](),
    "flow": {""},
    "models": {""},
    "observability": {""},
    "resilience": {"", "observability"},
    **dict.fromkeys(STAGES, SHARED),
    "shadow": {*SHARED, "execute", "sink"},
    "serving": {*SHARED, "execute", "rollout"},
    "worker": {*SHARED, *STAGES, "shadow", "serving", "rollout", "control"},
    "scaffold": {""},
    "supervision": SHARED,
    "comparison": SHARED,
    "rollout": set(),
    "control": {*SHARED, "rollout"},
    "report": {*SHARED, "source", "shadow", "comparison", "rollout", "replay", "evaluation"},
    "replay": {*SHARED, *STAGES, "shadow", "worker", "serving", "comparison", "rollout", "control"},
    "autopilot": {*SHARED, "rollout", "control", "evaluation"},
    "evaluation": {*SHARED, "rollout", "comparison", "shadow"},
    "model_servers": {""},
    "demo": {
        *SHARED,
        "supervision",
        "comparison",
        "model_servers",
        "rollout",
        "control",
        "evaluation",
        "autopilot",
    },
}
"""Room of `consumers` -> other rooms that it may import. `cli` may import all."""
MOST_MODULES = 10  # directly in `consumers`
KNOW_KAFKA = {
    "consumers/client_handle.py",
    "consumers/control/",
    "consumers/source/",
    "consumers/sink/",
    "topics/",
    "pipeline/client_trial.py",
}
"""Files and folders that may import Kafka's client."""
READ_ENVIRONMENT = (
    "consumers/cli/",
    "consumers/demo/",
    "consumers/model_servers/onnx_model.py",  # runs in Triton, which passes it the path of its packages only this way
    "inference/__init__.py",  # sets one for a library that reads nothing else
    "inference/sources/mlflow_registry.py",  # MLflow's client takes its settings from nowhere else
)
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


def room_of(module: str) -> str | None:
    """The room of `consumers` that a module of ours is in; None where it is in another package."""
    package, _, rest = module.removeprefix("millstream.").partition(".")
    return None if package != "consumers" else rest.split(".")[0] if is_folder(rest.split(".")[0]) else ""


def is_folder(name: str) -> bool:
    return bool(name) and (ROOT / "consumers" / name).is_dir()


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way_and_no_stage_imports_another(room: str) -> None:
    wrong = [
        f"{file}:{line} imports {name}"
        for file in FILES
        if room_of(file.removesuffix(".py").replace("/", ".")) == room
        for name, line in imported(file)
        if name.startswith("millstream.consumers") and room_of(name) not in {room, *ROOMS[room]}
    ]
    assert wrong == []


def test_every_room_has_its_rule() -> None:
    rooms = {path.parent.name for path in (ROOT / "consumers").glob("*/__init__.py")}
    assert rooms == ROOMS.keys() - {""} | {"cli"}


def test_modules_of_a_stage_are_in_its_room() -> None:
    assert len(list((ROOT / "consumers").glob("*.py"))) <= MOST_MODULES


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Imports for type checkers alone count too: a reader follows them as well."""
    modules = {file.removesuffix(".py").replace("/", "."): file for file in FILES}
    arrows = {
        module: {name.removeprefix("millstream.") for name, _ in imported(file)} & modules.keys()
        for module, file in modules.items()
    }
    sorter = TopologicalSorter(arrows)
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_the_modules_at_kafkas_border_import_its_client() -> None:
    found = [file for file in FILES for name, _ in imported(file) if name.split(".")[0] == "confluent_kafka"]
    assert [file for file in found if not file.startswith(tuple(KNOW_KAFKA))] == []


def test_only_the_demo_needs_polars() -> None:
    found = [file for file in FILES for name, _ in imported(file) if name.split(".")[0] == "polars"]
    assert [file for file in found if not file.startswith("consumers/demo/")] == []


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


@pytest.mark.parametrize("room", sorted({*STAGES, *SHARED, "shadow", "worker"} - {""}))
def test_room_says_what_goes_in_and_what_comes_out(room: str) -> None:
    said = ast.get_docstring(tree(f"consumers/{room}/__init__.py")) or ""
    assert "In:" in said
    assert "Out:" in said


def test_no_name_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
    assert [file for file in FILES if empty & set(Path(file).with_suffix("").parts)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_a_module_and_its_arguments_another(command: str) -> None:
    module = f"{command.replace('-', '_')}.py"
    for folder, function in (("consumers/cli", "run"), ("consumers/cli/usage", "add_arguments")):
        functions = {node.name for node in tree(f"{folder}/{module}").body if isinstance(node, ast.FunctionDef)}
        assert function in functions, folder
