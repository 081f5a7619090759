"""Signals before a command is ready: no traceback, one line or nothing, and the exit code of docs/running.md."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.cli.early_signals import EndAtOnce, ctrl_c_ends, end_early, end_late, raise_on_ctrl_c
from millstream.consumers.demo.example import example_folder
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.choice import Broker

ROOT = Path(__file__).parents[2]
NOT_READY = "interrupted before it was ready; nothing was read\n"
EXAMPLE = example_folder()
WAITS = "does not answer; waiting"
"""In the line of a command that waits for a broker."""
IMPORTING = ("millstream.consumers.cli.parser", "yaml", "confluent_kafka", "millstream.topics.admin")
"""Modules that every command of a pipeline imports one after the other."""
COMMANDS = {
    "work": (str(EXAMPLE),),
    "run": (str(EXAMPLE), "--plain"),
    "check": (str(EXAMPLE),),
    "predict": (str(EXAMPLE), str(EXAMPLE / "events.jsonl")),
    "tail": (str(EXAMPLE),),
    "produce": (str(EXAMPLE), str(EXAMPLE / "events.jsonl")),
}
MOMENTS = [
    *((command, module) for command in COMMANDS for module in IMPORTING[:2]),
    *((command, module) for command in ("work", "run", "tail", "produce") for module in IMPORTING[2:]),
    *((command, WAITS) for command in ("work", "run", "check")),
    ("init", IMPORTING[0]),
]
FOREVER = "(FOLDER / 'there').touch()\nwhile True: time.sleep(1)"
"""Code of a model that never comes back."""
QUICK = ("work", IMPORTING[1])


class Run(Worker):
    """A process of `millstream run`."""

    command = "run"


@contextmanager
def started(command: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, without a broker. It writes a line with the name of each module that it has imported."""
    with closing(socket.socket()) as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "KAFKA_BOOTSTRAP": f"127.0.0.1:{nobody.getsockname()[1]}"}
        program = [sys.executable, "-P", "-X", "importtime", "-m", "millstream", command, *arguments]
        with subprocess.Popen(program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            try:
                yield run
            finally:
                run.kill()


def interrupt(run: subprocess.Popen[str], moment: str, how: signal.Signals) -> str:
    """Send the signal once a line of standard error names the moment. Returns the other lines that come after it."""
    assert run.stderr is not None
    for line in run.stderr:
        if moment in (line.split("|")[-1].strip(), line[line.find(WAITS) :][: len(WAITS)]):
            break
    else:
        raise AssertionError(f"{run.args!r} never came to {moment}")
    run.send_signal(how)
    return "".join(line for line in run.stderr if not line.startswith("import time:"))


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "moment"),
    [QUICK, *(pytest.param(*each, marks=pytest.mark.full) for each in MOMENTS if each != QUICK)],
)
def test_ctrl_c_ends_a_command_that_is_not_ready_with_one_line(command: str, moment: str, tmp_path: Path) -> None:
    with started(command, *COMMANDS.get(command, (str(tmp_path / "new"),))) as run:
        said = interrupt(run, moment, signal.SIGINT)
        assert run.wait(20) == (0 if command in ("work", "run") else 1)
    assert said == (NOT_READY if command in ("work", "run") else "interrupted\n")


@pytest.mark.process
def test_worker_that_works_until_idle_and_is_stopped_before_it_is_ready_fails() -> None:
    with started("work", str(EXAMPLE), "--until-idle") as run:
        said = interrupt(run, IMPORTING[1], signal.SIGTERM)
        assert (run.wait(20), said) == (1, NOT_READY)


@pytest.mark.broker
def test_worker_that_works_until_idle_and_is_stopped_earlier_fails(kafka: Broker, tmp_path: Path) -> None:
    body = "(FOLDER / f'called{inputs[\"x\"][0, 0]:g}').touch()\ntime.sleep(0.5)\nreturn {'y': inputs['x'][:, 0]}"
    service = python_service(tmp_path, kafka, body, batch={"max_events": 1})
    send(service, range(1, 5))
    with Worker(service.file, "--until-idle") as worker:
        worker.wait_for((tmp_path / "called1").exists, 60, "at the first event")
        assert worker.stop(signal.SIGTERM) == 1
        assert "stopped before it was idle" in worker.log
        assert "drained: all results are written and committed" in worker.log


@pytest.mark.process
@pytest.mark.parametrize(
    "command",
    [
        "tail",
        *(pytest.param(each, marks=pytest.mark.full) for each in ("lag", "dead-letters list", "dead-letters show 0@0")),
    ],
)
def test_ctrl_c_ends_a_command_whose_kafka_client_waits_for_a_broker_that_says_nothing(command: str) -> None:
    """The client waits in C, where no handler of Python runs; it would give up after 10 s, with another message."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        environ = {"PYTHONPATH": str(ROOT), "KAFKA_BOOTSTRAP": f"127.0.0.1:{silent.getsockname()[1]}"}
        action, *rest = command.split(" ", 1)
        words = [*rest[0].split(" ", 1)[:1], str(EXAMPLE), *rest[0].split(" ", 1)[1:]] if rest else [str(EXAMPLE)]
        program = [sys.executable, "-P", "-m", "millstream", action, *words]
        with subprocess.Popen(program, env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True) as run:
            silent.settimeout(60)
            connection, _ = silent.accept()  # so the client waits
            with closing(connection):
                run.send_signal(signal.SIGINT)
                assert run.communicate(timeout=60)[1] == "interrupted\n"
                assert run.returncode == 1


@pytest.mark.process
def test_ctrl_c_ends_the_process_while_nothing_of_python_runs() -> None:
    """A client that waits for ten minutes."""
    code = (
        "import sys; from confluent_kafka import Consumer; from millstream.consumers.cli.early_signals import ctrl_c_ends\n"
        "with ctrl_c_ends():\n"
        "    Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'g'}).list_topics(timeout=600)\n"
    )
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        program = [sys.executable, "-P", "-c", code, f"127.0.0.1:{silent.getsockname()[1]}"]
        with subprocess.Popen(
            program, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
        ) as run:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with closing(connection):
                run.send_signal(signal.SIGINT)
                assert run.communicate(timeout=60)[1] == "interrupted\n"
                assert run.returncode == 1


@pytest.mark.parametrize("before", [-1, None])
def test_ctrl_c_is_left_as_it_was_behind_steps_that_only_read(before: int | None) -> None:
    with closing(socket.socket()) as other:
        other.setblocking(False)
        was = signal.set_wakeup_fd(other.fileno() if before is None else before)
        try:
            with pytest.raises(ValueError, match="of the step"), ctrl_c_ends():
                raise ValueError("of the step")
            assert signal.set_wakeup_fd(-1) == (other.fileno() if before is None else before)
        finally:
            signal.set_wakeup_fd(was)


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "moment"),
    [*((command, moment) for command in ("work", "run") for moment in (*IMPORTING, WAITS)), ("check", WAITS)],
)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_workers_as_a_drain_does_and_other_commands_silently(
    command: str, moment: str, how: signal.Signals
) -> None:
    with started(command, *COMMANDS[command]) as run:
        said = interrupt(run, moment, how)
        assert (run.wait(20), said) == ((-how, "") if command == "check" else (0, NOT_READY))


@pytest.mark.full
@pytest.mark.broker
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["load", "warm-up"])
def test_signal_ends_a_worker_that_loads_its_model(
    kafka: Broker, tmp_path: Path, when: str, how: signal.Signals
) -> None:
    service = python_service(tmp_path, kafka, FOREVER)
    if when == "load":
        code = tmp_path / "models" / "number" / "1" / "model.py"
        code.write_text(code.read_text().replace("class Model:", f"{FOREVER}\nclass Model:"))
    with Worker(service.file) as worker:
        worker.wait_for((tmp_path / "there").exists, 60, "at the model")
        assert worker.stop(how) == 0
        assert worker.log.endswith(NOT_READY)
        assert "Traceback" not in worker.log


@pytest.mark.full
@pytest.mark.broker
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_whose_worker_loads_its_model(kafka: Broker, tmp_path: Path, how: signal.Signals) -> None:
    service = python_service(tmp_path, kafka, FOREVER)
    with Run(service.file, "--plain") as run:
        run.wait_for((tmp_path / "there").exists, 60, "at the model")
        assert run.stop(how) == 0
        assert f"[0] {NOT_READY}" in run.log
        assert "Traceback" not in run.log


@pytest.mark.process
def test_sigterm_ends_the_first_process_of_a_container() -> None:
    """The kernel ignores a signal to it that has no handler."""
    program = [sys.executable, "-P", "-X", "importtime", "-m", "millstream", "work", str(EXAMPLE)]
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as container:
        try:
            assert container.stderr is not None
            if not any(line.rstrip().endswith(" yaml") for line in container.stderr):
                pytest.skip("this user may not make a namespace of processes")
            children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
            os.kill(int(children), signal.SIGTERM)
            assert container.stderr.read().endswith(NOT_READY)
            assert container.wait(20) == 0
        finally:
            container.kill()


@pytest.fixture
def handlers_come_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore it
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_come_back")
def test_command_that_begins_gets_ctrl_c_as_an_exception_until_it_ends() -> None:
    end_early(["--anything", "produce", "work"])
    raise_on_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    end_late(0)
    assert isinstance(signal.getsignal(signal.SIGINT), EndAtOnce)


@pytest.mark.usefixtures("handlers_come_back")
def test_ignored_signal_stays_ignored_and_sigterm_of_most_commands_keeps_its_meaning() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for command in ("work", "check"):
        end_early([command])
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert (signal.getsignal(signal.SIGTERM) == signal.SIG_DFL) is (command == "check")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.usefixtures("handlers_come_back")
def test_command_that_handles_ctrl_c_itself_keeps_it_until_it_is_done() -> None:
    def own(*_: object) -> None:
        pass

    signal.signal(signal.SIGINT, own)
    raise_on_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is own
    end_late(0)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
