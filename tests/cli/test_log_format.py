"""`--log-format json`: each line that a worker or `millstream run` writes is a JSON object, up to the last one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.errors import NEEDS_CHANGE
from millstream.consumers.supervision.child import CommandProcess
from tests.broker.choice import Broker
from tests.cli.command import millstream
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service, send
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.consumers.service import Service

JSON = ("--log-format", "json")
NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
MODEL = r"""
import logging, warnings
warnings.warn("two\nlines")
logging.getLogger("model").warning("é, and half of a character: \ud800")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("millstream.model").exception("model: wrong")
return {"y": inputs["x"][:, 0]}
"""


class Run(Worker):
    """A process of `millstream run`."""

    command = "run"


def objects(log: str) -> list[dict[str, Any]]:
    """The objects, one on each line."""
    found = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= each.keys() for each in found)
    return found


@pytest.mark.broker
def test_every_line_of_a_worker_is_an_object(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, MODEL)
    send(service, range(3))
    with Worker(service.file, *JSON, "--until-idle", "--instance-id", "w0") as worker:
        assert worker.wait() == 0
        logged = objects(worker.log)
    assert {each["instance"] for each in logged} == {"w0"}
    assert {each.get("pipeline") for each in logged[1:]} == {service.group}
    messages = [each["message"] for each in logged]
    assert any("two\nlines" in message for message in messages)
    assert "é, and half of a character: \\ud800" in messages
    assert any(message.startswith("totals: 3 events read, 3 predicted") for message in messages)
    assert {each["error"]["type"] for each in logged if "error" in each} == {"ZeroDivisionError"}


@pytest.mark.broker
def test_every_line_of_a_run_is_an_object_and_those_of_workers_stay_as_they_are(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, f"print('plain text', flush=True)\n{MODEL}")
    send(service, range(3))
    with Run(
        service.file, *JSON, "--workers", "1", "--instance-id-prefix", "w", "--log-level", "info", "--metrics-port", "0"
    ) as run:
        run.wait_ready()
        service.wait_committed()
        assert run.stop() == 0
        logged = objects(run.log)
    of_worker = [each for each in logged if each.get("instance") == "w-0"]
    assert any(each["message"].startswith("totals: 3 events read, 3 predicted") for each in of_worker)
    assert ("plain text", "WARNING") in {(each["message"], each["level"]) for each in of_worker}
    own = [each["message"] for each in logged if "instance" not in each]
    assert any(message.startswith("totals: 3 events read") and "(of 1 worker)" in message for message in own)
    assert own[-1] == "all workers drained"


@pytest.mark.broker
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_parent_sees_in_either_format_that_the_worker_was_ready_and_told_its_totals(
    kafka: Broker, tmp_path: Path, log_format: str
) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}")
    with CommandProcess("work", service.file, "--until-idle", "--log-format", log_format) as worker:
        assert worker.wait(60) == worker.status() == 0
        assert (worker.was_ready, worker.told_totals) == (True, True)


@pytest.mark.broker
def test_run_shows_the_levels_that_are_asked_for(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}")
    with Run(service.file, *JSON, "--workers", "1", "--log-level", "error") as run:
        run.wait_ready()
        assert run.stop() == 0
        assert not any("instance" in each for each in objects(run.log))


@pytest.mark.process
@pytest.mark.parametrize("command", [Worker, Run])
def test_error_that_ends_the_process_is_an_object(command: type[Worker], tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nfoo: 1\nbar: 2\n")
    with command(file, *JSON) as process:
        assert process.wait() == NEEDS_CHANGE
        [error] = objects(process.log)
    assert error["level"] == "ERROR"
    assert len(error["message"].splitlines()) >= 2
    assert all(line.startswith(f"{file}:") for line in error["message"].splitlines())


@pytest.mark.broker
def test_error_of_the_last_worker_is_text_in_the_error_of_the_run(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    (tmp_path / "models" / "vector" / "1" / "model.onnx").write_bytes(b"damaged")
    with Run(service.file, *JSON, "--workers", "1") as run:
        assert run.wait() == NEEDS_CHANGE
        logged = objects(run.log)
    assert logged[-1]["level"] == "ERROR"
    head, _, end = logged[-1]["message"].partition("start `millstream run` again:\n")
    assert "No worker is left" in head
    assert end.startswith("    ")
    assert "model.onnx" in end
    assert "{" not in end


@pytest.mark.process
def test_signal_before_a_worker_is_ready_is_an_object(tmp_path: Path) -> None:
    service: Service = vector_service(tmp_path, NOWHERE, with_topics=False)
    with Worker(service.file, *JSON) as worker:
        worker.wait_for(lambda: "does not answer; waiting" in worker.log, 60, "without a broker")
        assert worker.stop(signal.SIGTERM) == 0
        assert objects(worker.log)[-1]["message"] == "interrupted before it was ready; nothing was read"


@pytest.mark.process
def test_errors_that_nobody_catches_are_objects() -> None:
    program = r"""
import threading, warnings
from millstream.consumers.cli.log_lines import log_as_json
class Broken:
    def __del__(self):
        raise KeyError("deleted")
log_as_json()
warnings.warn("of\na library")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
Broken()
raise ValueError("half \ud800")
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    logged = objects(done.stderr)
    assert done.returncode == 1
    assert "of\na library" in logged[0]["message"]
    assert [each["error"]["type"] for each in logged[1:]] == ["ZeroDivisionError", "KeyError", "ValueError"]


def test_default_is_text(tmp_path: Path) -> None:
    done = millstream("work", tmp_path / "none.yaml")
    assert done.stderr.startswith(str(tmp_path / "none.yaml"))
