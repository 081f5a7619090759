"""Commands whose output can't be written, because it is closed or its disk is full."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from millstream.consumers.supervision.child import MILLSTREAM

FULL = Path("/dev/full")


def ran(*arguments: str, output: str) -> tuple[int, str]:
    """The exit code and stderr of a command line of the shell, whose stdout is `output`."""
    command = f'"$@" {output}'
    done = subprocess.run(
        ["bash", "-c", command, "sh", *MILLSTREAM, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_closed_output_is_no_error() -> None:
    assert ran("options", output=">&-") == (0, "")
    assert ran("docs", "running", output=">&-") == (0, "")


@pytest.mark.parametrize(("version", "code"), [(1, 0), (7, 1)])
def test_check_ends_with_its_own_code_though_nobody_reads_on(tmp_path: Path, version: int, code: int) -> None:
    folder = tmp_path / "p"
    assert ran("init", str(folder), output=">/dev/null") == (0, "")
    file = folder / "pipeline.yaml"
    text = file.read_text()
    assert "version: 1 " in text
    file.write_text(text.replace("version: 1 ", f"version: {version} "))
    found = ran("check", str(folder), "--offline", output="| (read line; echo $line >&2); exit ${PIPESTATUS[0]}")
    assert found[0] == code


def test_closed_input_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("name: p\n")
    code, said = ran("predict", str(tmp_path / "p.yaml"), "-", output="<&-")
    assert code == 1
    assert "Traceback" not in said


def test_closed_stderr_moves_no_message_to_stdout() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *MILLSTREAM, "no-such-command"], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


def test_options_begin_with_the_page_and_not_with_a_note_to_its_authors() -> None:
    code, said = ran("options", output="| head -1 >&2")
    assert (code, said) == (0, "# The pipeline file\n")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["options"], ["--version"], ["--help"], ["predict", "--help"]])
def test_output_to_a_full_disk_is_told_in_one_line(
    arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    code, said = ran(*arguments, output=f">{FULL}")
    assert code == 1
    assert said == "The output, or a file, can't be written: No space left on device. Make room, and try again.\n"
