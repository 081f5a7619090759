"""A journey: shell commands in a folder of its own, recorded with their output and seconds."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LIMIT = 180  # seconds that a command may take
SHOWN_LINES = 40  # of a command's output, in the transcript
SHOWN_ROWS = 3  # of a file of events
SHOWN_WIDTH = 1500  # characters of a line: JSON of many windows or partitions is longer


class Background:
    """A command that runs beside the journey, such as a worker or a broker."""

    def __init__(self, journey: Journey, command: str) -> None:
        self.journey, self.command, self.began = journey, command, time.monotonic()
        self.path = journey.folder / f"output-{len(journey.steps)}-{len(journey.background)}.txt"
        with self.path.open("w") as output:
            self.process = subprocess.Popen(
                command, shell=True, cwd=journey.folder, env=journey.variables,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def wait_for(self, text: str) -> None:
        """Wait until the output has the text. Raises AssertionError if the command ends or takes too long."""
        until = time.monotonic() + LIMIT
        while text not in self.path.read_text(errors="replace"):
            ended = self.process.poll()
            if ended is not None and text in self.path.read_text(errors="replace"):  # printed since, as its last words
                return
            assert ended is None, f"{self.command} ended with {ended} before `{text}`:\n{self.path.read_text()}"
            assert time.monotonic() < until, f"{self.command} didn't print `{text}`:\n{self.path.read_text()}"
            time.sleep(0.05)

    def stop(self, how: signal.Signals | None = signal.SIGINT, expect: int | None = 0) -> str:
        """Send the signal, as Ctrl-C in a terminal does, to all processes of the command; returns its output.

        None: it ends by itself.
        """
        if how is not None and self.process.poll() is None:
            os.killpg(self.process.pid, how)
        code = self.process.wait(LIMIT)
        output = self.path.read_text(errors="replace")
        end = "" if how is None else f", then {how.name}"
        self.journey.record(f"{self.command}    # in the background{end}", output, code, self.began)
        assert expect in {None, code}, f"{self.command}: ended with {code}, expected {expect}:\n{output}"
        return output


class Journey:
    """What one user does. A step that fails raises AssertionError with the command and its output."""

    def __init__(self, title: str, folder: Path, environment: Path, bootstrap: str, cache: Path) -> None:
        """Args:
        folder: empty, the user's.
        environment: the virtual environment with the wheel.
        bootstrap: a broker's address.
        cache: folder with Apache Kafka, for a broker of the journey's own.
        """
        self.title, self.folder, self.cache = title, folder, cache
        self.steps: list[str] = []
        self.background: list[Background] = []
        self.began = time.monotonic()
        outside = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        self.variables = outside | {
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "KAFKA_BOOTSTRAP": bootstrap, "COLUMNS": "120",
        }  # fmt: skip

    def run(self, command: str, expect: int | None = 0) -> str:
        """Run a shell command; returns stdout and stderr together, as a terminal shows them. expect: its exit code; None: any."""
        began = time.monotonic()
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.variables, text=True, errors="replace", check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
        )  # fmt: skip
        self.record(command, done.stdout, done.returncode, began)
        assert expect in {None, done.returncode}, (
            f"{command}: ended with {done.returncode}, expected {expect}:\n{done.stdout}"
        )
        assert "Traceback" not in done.stdout, f"{command} printed a traceback:\n{done.stdout}"
        return done.stdout

    def until(self, command: str, holds: Callable[[str], bool], expect: int = 0) -> str:
        """Run the command again and again until it ends with this code and its output holds; records only the last run."""
        steps, limit = len(self.steps), time.monotonic() + LIMIT
        while True:
            del self.steps[steps:]
            try:
                output = self.run(command, expect)
            except AssertionError:
                assert time.monotonic() < limit
            else:
                if holds(output):
                    return output
                assert time.monotonic() < limit, f"{command} printed no expected output within {LIMIT} s:\n{output}"
            time.sleep(0.2)

    def start(self, command: str) -> Background:
        """Start a command that runs until `stop`, or until the journey ends."""
        self.background.append(Background(self, command))
        return self.background[-1]

    def write(self, name: str, text: str) -> None:
        """Write a file, as the user does in an editor."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        lines = text.splitlines(keepends=True)
        if name.endswith(".jsonl") and len(lines) > SHOWN_ROWS:
            lines = [*lines[:SHOWN_ROWS], f"... ({len(lines) - SHOWN_ROWS:,} more lines)\n"]
        self.steps.append(f"`{name}`:\n\n```\n{''.join(lines)}```\n")

    def change(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file. Raises AssertionError if the file hasn't the text."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} has no `{old}`:\n{text}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        marked = [
            f"{mark} {line}".replace("\t", "<TAB>").replace("\ufeff", "<BYTE ORDER MARK>")
            for mark, part in (("-", old), ("+", new))
            for line in part.strip("\n").split("\n")
        ]
        self.steps.append(f"In `{name}`:\n\n```diff\n{chr(10).join(marked)}\n```\n")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The objects of a file of JSON lines."""
        return [json.loads(line) for line in (self.folder / name).read_text(encoding="utf-8").splitlines()]

    def assert_predicted(
        self, predictions: str, expected: Mapping[str, float], output: Callable[[Any], float], *, repeated: bool = False
    ) -> None:
        """Assert that each event has one prediction, and that its output is what the model must compute.

        predictions: a file of `millstream tail`; expected: by event ID, computed without Millstream; output: takes the
        number from a prediction's outputs; repeated: an event may have several predictions if they are the same.
        """
        rows = [row["value"] for row in self.rows(predictions)]
        found = {row["event_id"]: output(row["outputs"]) for row in rows}
        if repeated:
            assert all(found[row["event_id"]] == output(row["outputs"]) for row in rows), "repeated predictions differ"
        else:
            assert len(rows) == len(found), f"{len(rows) - len(found)} events have more than one prediction"
        assert found.keys() == expected.keys(), f"predictions of other events: {found.keys() ^ expected.keys()}"
        wrong = {name: (found[name], value) for name, value in expected.items() if abs(found[name] - value) > 1e-4}
        assert not wrong, f"{len(wrong)} predictions are wrong (found, expected): {list(wrong.items())[:3]}"
        several = "at least one prediction" if repeated else "exactly one prediction"
        self.checked(f"each of the {len(found):,} events has {several}, and it is what the model must compute")

    def checked(self, what: str) -> None:
        """Note what the journey has made sure of."""
        self.steps.append(f"*Checked: {what}.*\n")

    def record(self, command: str, output: str, code: int, began: float) -> None:
        """Add a command to the transcript, without this machine's paths."""
        text = (
            re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
            .replace(str(self.folder), "~")
            .replace(str(self.folder.parent), "~/..")
            .replace(str(self.cache), "CACHE")
        )
        lines = [
            line
            if len(line) <= SHOWN_WIDTH
            else f"{line[:SHOWN_WIDTH]} ... ({len(line) - SHOWN_WIDTH:,} more characters)"
            for line in text.splitlines()
        ]
        if len(lines) > SHOWN_LINES:
            half = SHOWN_LINES // 2
            lines = [*lines[:half], f"... ({len(lines) - SHOWN_LINES} lines)", *lines[-half:]]
        shown = command.replace(str(self.cache), "CACHE")
        self.steps.append(
            f"```\n$ {shown}\n{chr(10).join(lines)}\n```\n\n{time.monotonic() - began:.1f} s, exit {code}\n"
        )

    def end(self) -> None:
        """Kill what still runs in the background."""
        for command in self.background:
            if command.process.poll() is None:
                command.stop(signal.SIGKILL, None)

    def page(self, result: str) -> str:
        """The transcript as Markdown."""
        head = f"# {self.title}\n\n{result}, {time.monotonic() - self.began:.0f} s, {len(self.steps)} steps\n\n"
        return head + "\n".join(self.steps)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def json_lines(rows: Sequence[Mapping[str, object]]) -> str:
    """Events as a file of JSON lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows)
