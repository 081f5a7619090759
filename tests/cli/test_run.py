"""`millstream run` with real workers on a real broker: they are started again, follow the load, and never outlive it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka import Consumer
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load import vector_events, write_load
from millstream.consumers.cli import main as cli
from millstream.consumers.errors import NEEDS_CHANGE
from millstream.consumers.supervision.child import MILLSTREAM, reported_port
from tests.broker.clients import create_topic, wait_until
from tests.consumers.python_service import answered, python_service, send
from tests.consumers.service import id_of, vector_service

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.broker.choice import Broker

START = 120.0  # seconds

pytestmark = [pytest.mark.durable, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


class Run:
    """The command; a context manager that leaves nothing behind."""

    def __init__(self, pipeline: Path, *options: str) -> None:
        self._log = pipeline.with_name(f"run-{os.urandom(4).hex()}.log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*MILLSTREAM, "run", str(pipeline), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = START) -> None:
        def holds() -> bool:
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.log}"
            return condition()

        wait_until(holds, timeout, f"{what}; the run's log:\n{self.log}")

    def wait_ready(self, workers: int) -> None:
        self.wait_for(lambda: self.metric("millstream_workers_ready") == workers, f"{workers} workers are ready")

    def get(self, path: str) -> str:
        port = reported_port(self.log)
        if port is None:
            return ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as not_ready:
            return not_ready.read().decode()
        except OSError:
            return ""

    def samples(self) -> dict[tuple[str, str], float]:
        """(name, the label `worker` or "") -> the sum over all other labels."""
        found: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                key = sample.name, sample.labels.get("worker", "")
                found[key] = found.get(key, 0.0) + sample.value
        return found

    def assigned(self) -> dict[str, float]:
        """Partitions of each worker."""
        samples = self.samples().items()
        return {worker: value for (name, worker), value in samples if name == "millstream_assigned_partitions"}

    def metric(self, name: str) -> float | None:
        return self.samples().get((name, ""))

    def children(self) -> set[int]:
        """Its processes that run, with theirs."""
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if state != "Z":
                parents[int(folder.name)] = int(parent)
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()  # its workers die with it
        self.process.wait()
        if error is not None:
            error.add_note(f"The run's log ends:\n{self.log[-3000:]}")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killed_worker_is_replaced_and_every_event_is_answered_once(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, delivery="exactly_once")
    events = vector_events(4000, seed=5)
    with Run(service.file, "--plain", "--workers", "2", "--metrics-port", "0", "--metrics-host", "127.0.0.1") as run:
        run.wait_ready(2)
        victim = min(run.children())
        service.file.write_text(service.file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        write_load(kafka.bootstrap, service.inputs[0], events)
        os.kill(victim, signal.SIGKILL)
        run.wait_for(lambda: run.metric("millstream_worker_restarts_total") == 1, "the worker is started again")
        run.wait_ready(2)
        run.wait_for(lambda: run.assigned() == {"0": 2, "1": 2}, "the partitions are shared again")
        service.wait_committed(60)
        samples = run.samples()
        assert samples["millstream_ready", "0"] == samples["millstream_ready", "1"] == 1
        assert samples["millstream_workers_wanted", ""] == 2
        assert ("millstream_group_lag", "") in samples
        told = "2 ready of 2 workers; the size is fixed"  # as a look at both found it, a second ago or on a busy machine more
        run.wait_for(lambda: told in run.get("/ready"), "told to be ready")
        workers = run.children()
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0, run.log
        assert not any(alive(pid) for pid in workers)
    assert f"(pid {victim}) ended by signal 9; it restarts in 1 s" in run.log
    assert run.log.rstrip().endswith("-- all workers drained")
    assert "A second SIGTERM stops them at once" in run.log
    assert "(of 2 workers; without 1 worker that ended without a count)" in run.log
    assert run.log.count("has changed: worker ") == 1
    assert sorted(map(id_of, service.predictions())) == [f"event-{number:010d}" for number in range(4000)]


def test_ready_tells_what_a_worker_waits_for(kafka: Broker, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.1)\n"
    service = python_service(tmp_path, kafka, f'{wait}return {{"y": -inputs["x"]}}')
    with Run(service.file, "--plain", "--workers", "1", "--metrics-port", "0") as run:
        run.wait_for(lambda: "; worker 0: not ready: " in run.get("/ready"), "the worker says what it waits for")
        assert run.get("/ready").startswith("0 ready of 1 worker; ")
        go.touch()
        run.wait_for(lambda: run.get("/ready") == "1 ready of 1 worker; the size is fixed\n", "told to be ready")


def test_ready_counts_no_killed_worker_and_says_that_the_run_stops(kafka: Broker, tmp_path: Path) -> None:
    slow = 'import time\nif (inputs["x"] == 7).any():\n    time.sleep(5)\nreturn {"y": -inputs["x"]}'
    service = python_service(tmp_path, kafka, slow)
    with Run(service.file, "--plain", "--workers", "2", "--metrics-port", "0") as run:
        run.wait_ready(2)
        workers = run.children()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        run.wait_for(lambda: run.log.count(" ended by signal 9; ") == 2, "both have ended")
        assert run.get("/ready").startswith("0 ready of 2 workers; ")
        run.wait_for(lambda: run.get("/ready").startswith("2 ready of 2 workers; "), "both are started again")
        send(service, [7])
        in_flight = [("millstream_in_flight_events", worker) for worker in ("0", "1")]
        run.wait_for(lambda: any(run.samples().get(name) for name in in_flight), "a worker has the event")
        run.process.send_signal(signal.SIGTERM)
        run.wait_for(lambda: run.get("/ready") == "stopping: 1 worker left to drain\n", "the run says that it stops")
        assert run.process.wait(60) == 0, run.log


def test_workers_follow_a_backlog_up_and_down(kafka: Broker, tmp_path: Path) -> None:
    """Small transactions make a worker slow and a target of a fraction of a second makes little load much."""
    scaling = {"catch_up": "50ms", "scale_down_after": "3s", "max": 2}
    small = {"batch": {"max_events": 32}, "limits": {"in_flight_events": 128}}
    service = vector_service(tmp_path, kafka, delivery="exactly_once", scaling=scaling, **small)
    with Run(service.file, "--plain", "--metrics-port", "0", "--metrics-host", "127.0.0.1") as run:
        run.wait_ready(1)
        events = vector_events(20_000, seed=6)  # seconds of work, so that a measurement falls into it

        def two() -> bool:
            """Write more until there are two, for one may be done with what there was before it is measured."""
            if (run.metric("millstream_group_total_lag") or 0) < len(events.values):
                write_load(kafka.bootstrap, service.inputs[0], events)
            return run.metric("millstream_workers_wanted") == 2

        run.wait_for(two, "a second worker is wanted")
        run.wait_ready(2)
        run.wait_for(lambda: run.metric("millstream_workers_wanted") == 1, "one worker is enough")
        run.wait_for(lambda: len(run.children()) == 1, "the other has gone")
        assert run.metric("millstream_worker_restarts_total") == 0
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(60) == 0, run.log
    assert re.search(r"1 -> 2: .* events/s arrive and .* wait, a worker can do", run.log)
    assert re.search(r"2 -> 1: 1 was enough for 3 s", run.log)
    assert "A second Ctrl-C stops them at once" in run.log


def test_no_worker_outlives_a_run_that_is_killed(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    with Run(service.file, "--plain", "--min", "2", "--max", "9") as run:
        run.wait_for(lambda: len(run.children()) == 2 and "hold" in run.log, "both workers and the first decision")
        workers = run.children()
        run.process.kill()
        run.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in workers), 20, f"workers {workers} to end")
    assert run.log.count("up to 9 workers for 4 partitions") == 1  # allowed, and said once


def test_pipeline_that_can_not_work_is_given_up_with_the_workers_message(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, model={"name": "no-such-model"})
    with Run(service.file, "--plain") as run:
        assert run.process.wait(START) == NEEDS_CHANGE
    message = run.log[run.log.index("No worker is left") :]
    assert "no-such-model" in message
    assert "is started again" not in run.log
    assert "Traceback" not in run.log


def test_run_that_ends_with_a_broken_worker_fails(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    with Run(service.file, "--plain", "--workers", "2", "--metrics-port", "0", "--metrics-host", "127.0.0.1") as run:
        run.wait_ready(2)
        victim = min(run.children())
        text = service.file.read_text(encoding="utf-8")
        service.file.write_text(text.replace("name: vector", "name: no-such-model"), encoding="utf-8")
        os.kill(victim, signal.SIGKILL)
        run.wait_for(lambda: "so it isn't restarted" in run.log, "the worker that can't start is given up")
        told = "was given up: exit code 3, see its last log lines"
        run.wait_for(lambda: run.get("/ready").startswith("1 ready of 2 workers") and told in run.get("/ready"), "told")
        assert told in run.log
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 1, run.log
    assert run.log.rstrip().endswith("-- 1 worker had ended by an error before, which the lines above tell")


def test_worker_that_starts_while_the_file_is_saved_is_started_again(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    with Run(service.file, "--plain", "--workers", "2", "--metrics-port", "0", "--metrics-host", "127.0.0.1") as run:
        run.wait_ready(2)
        whole = service.file.read_text(encoding="utf-8")
        service.file.write_text("name: [", encoding="utf-8")
        os.kill(min(run.children()), signal.SIGKILL)
        run.wait_for(lambda: "the pipeline file can't be read, or was saved meanwhile" in run.log, "the file is told")
        service.file.write_text(whole, encoding="utf-8")
        run.wait_ready(2)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0, run.log
    assert "isn't restarted" not in run.log


def test_run_ends_when_the_pipeline_stops_at_an_event(kafka: Broker, tmp_path: Path) -> None:
    """The other worker takes the partition over, comes to the same event and stops there, too."""
    body = 'if (inputs["x"] == 7).any():\n    raise ValueError("seven")\nreturn {"y": -inputs["x"]}'
    service = python_service(tmp_path, kafka, body, on_error={"stop": ["model_rejected"]})
    with Run(service.file, "--plain", "--workers", "2", "--metrics-port", "0") as run:
        run.wait_ready(2)
        send(service, range(10))
        assert run.process.wait(START) == NEEDS_CHANGE
    assert run.log.count("Another worker takes its partitions over") == 1
    message = run.log[run.log.index("No worker is left") :]
    assert "the event at offset 7 of" in message
    assert "take model_rejected out of `on_error.stop`" in message
    assert "is started again" not in run.log
    assert sorted(answered(service)) == [f"e{number}" for number in range(7)]


def test_group_that_reads_something_else_is_refused(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    create_topic(kafka.bootstrap, f"{service.group}-other", 1, {})
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group, "client.id": "stranger"})
    member.subscribe([f"{service.group}-other"])
    try:
        wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), 30, "the other member's assignment")
        assert cli.run(["run", str(service.file)]) == 1
    finally:
        member.close()
    [line] = capsys.readouterr().err.splitlines()
    assert f"group {service.group} is in use by something else: its member stranger" in line
    assert f"reads {service.group}-other" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "2", "--max", "3"), "give one or the other"),
        (("--min", "3", "--max", "2"), "found --min 3 and --max 2"),
        (("--workers", "0"), "expected a whole number of at least 1"),
        (("--instance-id-prefix", " "), "expected a name, found nothing"),
        (("--metrics-port", "99999"), "expected a port from 0 to 65535"),
    ],
)
def test_wrong_use_is_told(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    service = vector_service(tmp_path, kafka)
    with pytest.raises(SystemExit) as ended:
        cli.run(["run", str(service.file), *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_missing_topics_are_told(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    assert cli.run(["run", str(service.file)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "millstream topics create" in line
