"""The help of every command, the errors of a wrong command line, and the completion of a right one."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.cli.examples import EXAMPLES

EXAMPLE_LINES = [line for examples in EXAMPLES.values() for line, _ in examples]


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.run([*command.split()[1:], "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_word_that_is_only_a_little_like_an_action_is_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean" not in refused(["rollout", "abort", "p"], capsys)
    assert "Did you mean rollback?" in refused(["rollout", "rolback", "p"], capsys)


def test_share_is_shown_as_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--share PERCENT" in help_of("millstream rollout start", capsys)
    assert "--share [VARIANT=]PERCENT" in help_of("millstream rollout set", capsys)


def test_summary_of_a_command_names_its_actions(capsys: pytest.CaptureFixture[str]) -> None:
    actions = re.findall(r"^    (\w+)", help_of("millstream models", capsys), re.MULTILINE)
    assert "diff" in actions
    assert all(action in cli.COMMANDS["models"] for action in actions)


def test_every_command_has_examples() -> None:
    assert {f"millstream {command}" for command in cli.COMMANDS} <= EXAMPLES.keys()


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Assert that this is wrong use; returns what stderr says."""
    with pytest.raises(SystemExit) as ended:
        cli.run(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples_of_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, examples = help_of(command, capsys).split("\nexamples:\n")
    lines = examples.splitlines()
    assert len(lines) == len(EXAMPLES[command])
    assert all(len(line) <= 130 for line in lines)
    if command != "millstream":
        assert any(line.strip().startswith(command) for line in lines)


@pytest.mark.parametrize("line", EXAMPLE_LINES)
def test_example_is_a_command_line_that_is_understood(line: str) -> None:
    words = shlex.split(line.split(" > ", maxsplit=1)[0].split(" >> ", maxsplit=1)[0])
    args = cli.command_line([words[1]]).parse_args(words[1:])
    assert callable(args.run)


@pytest.mark.parametrize("actions", [("topics", "create"), ("topics", "show"), ("dead-letters", "list")], ids=" ".join)
def test_help_of_an_action_has_examples(actions: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert f"millstream {' '.join(actions)} my-pipeline" in help_of(f"millstream {' '.join(actions)}", capsys)


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["lag", "p", "--colour"], "usage: millstream lag "),
        (["topics", "show", "p", "--colour"], "usage: millstream topics show "),
        (["topics"], "usage: millstream topics "),
        (["tail", "p", "--limit", "0"], "usage: millstream tail "),
        ([], "usage: millstream "),
    ],
    ids=str,
)
def test_wrong_use_shows_the_usage_of_its_command(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(arguments, capsys).startswith(usage)


@pytest.mark.parametrize(("word", "meant"), [("tial", "Did you mean tail?"), ("xyz", "`millstream --help` lists all")])
def test_unknown_command_names_the_nearest(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run([word, "p"])
    assert ended.value.code == 2
    assert f"there is no command '{word}'. {meant}" in capsys.readouterr().err


def test_completion_knows_commands_options_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", "bash"]) == 0
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        ask = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_millstream; echo "${COMPREPLY[@]}"'
        line = ["bash", "-c", ask, "bash", str(script), "millstream", *words]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()

    assert completed("dead") == ["dead-letters"]
    assert completed("topics", "cr") == ["create"]
    assert completed("docs", "mod") == ["models"]
    assert completed("work", "--log-level", "w") == ["warning"]
    assert completed("tail", "--from") == ["--from-beginning"]
    (tmp_path / "flights.yaml").touch()
    (tmp_path / "flights.txt").touch()
    assert completed("check", "fl") == ["flights.yaml"]
    (tmp_path / "my-pipeline").mkdir()
    assert completed("check", "my") == ["my-pipeline/"] or completed("check", "my") == ["my-pipeline"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_other_shells_knows_pages_and_levels(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "guarantees llm metrics models" in script
    assert "debug info warning error" in script


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lag", "p", "--intervall", "3"], "--interval?"),
        (["topics", "crate", "p"], "create?"),
        (["work", "p", "--log-level", "warn"], "warning?"),
    ],
    ids=str,
)
def test_wrong_option_or_choice_names_the_nearest(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"Did you mean {told}" in refused(arguments, capsys)


def test_former_verbose_of_run_still_works_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    args = cli.command_line(["run"]).parse_args(["run", "p", "--verbose"])
    assert args.log_level == "info"
    assert "--verbose is now --log-level info" in capsys.readouterr().err
    assert cli.command_line(["run"]).parse_args(["run", "p"]).log_level == "warning"


def test_file_behind_an_option_is_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = str(tmp_path / "no.yaml")
    for arguments in (["--topic", "labels", "a.jsonl"], ["a.jsonl", "--topic", "labels"]):
        assert cli.run(["produce", pipeline, *arguments]) == 1
        assert "no.yaml" in capsys.readouterr().err  # the arguments are good, and the pipeline file is missing
    with pytest.raises(SystemExit):
        cli.run(["produce", pipeline, "a.jsonl", "--topic", "labels", "b.jsonl"])
    assert "unknown arguments: b.jsonl" in capsys.readouterr().err


def test_wrong_version_behind_an_option_is_told_as_one_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = str(tmp_path / "no.yaml")
    before = refused(["rollout", "wait", pipeline, "v 3", "--timeout", "5s"], capsys)
    assert "argument VERSION: " in before
    assert refused(["rollout", "wait", pipeline, "--timeout", "5s", "v 3"], capsys) == before
