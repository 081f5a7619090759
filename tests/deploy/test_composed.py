"""docker-compose.yml's services without containers: the same commands on real parts, all panels, and faults that alert."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millstream.consumers.supervision.child import MILLSTREAM
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.deploy.compose import command_of, path_here
from tests.deploy.dashboards import MODELS, OF_ALL, ROLLOUTS, queries
from tests.deploy.programs import ROOT, Program
from tests.deploy.prometheus import MISSING, Prometheus
from tests.registry.apicurio import Apicurio, missing_for_registry

if TYPE_CHECKING:
    from tests.deploy.dashboards import Query

EVENTS = "flights-departures"
BAD = b"\0\0\0\x10\x92"  # a schema id that the registry does not know, and nothing more
CANDIDATE = "3"  # a copy of version 1
VARIABLES = {"pipeline": "flights-delay", "shadow": "flights-delay:2"}
AT_FAULT = {
    *("MillstreamDeadLetters", "MillstreamWorkersRestarting", "MillstreamPartitionStuck", "MillstreamLagUnknown"),
    *("MillstreamEventsDeletedUnread", "MillstreamWaiting"),
}
"""What a machine that is merely slow does not cause."""

lacking = MISSING or missing_for_maven() or missing_for_registry()
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(lacking is not None, reason=str(lacking)),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def command(name: str, *more: str) -> list[str]:
    """A service's command with the checkout's paths; ports are free ones."""
    words = [path_here(word, name) for word in command_of(name)]
    if "--metrics-port" in words:
        words[words.index("--metrics-port") + 1] = "0"
    program = MILLSTREAM if words[0] == "millstream" else (sys.executable,)
    return [*program, *words[1:], *more]


class Stack:
    """The services; what starts stays until the end."""

    def __init__(self, stack: ExitStack, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kafka = stack.enter_context(MavenKafka())
        self.registry = stack.enter_context(Apicurio())
        monkeypatch.setenv("KAFKA_BOOTSTRAP", self.kafka.bootstrap)
        monkeypatch.setenv("REGISTRY_URL", self.registry.url)
        models = Path("models") / "flights-delay"
        shutil.copytree(ROOT / "examples" / "flights" / models, folder / models)
        shutil.copytree(folder / models / "1", folder / models / CANDIDATE)
        monkeypatch.setenv("FLIGHTS", str(folder))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        for name in ("schemas", "topics"):
            subprocess.run(command(name), cwd=ROOT, check=True, timeout=60)
        self.run = stack.enter_context(Program(command("millstream"), folder))
        self.producer = stack.enter_context(Program(command("producer", "--rate", "60", "--flight-time", "3"), folder))
        self.compare = stack.enter_context(Program(command("compare"), folder))
        self.autopilot = stack.enter_context(Program(command("autopilot"), folder))
        ports = {
            "millstream": self.run.port,
            "millstream-compare": self.compare.port,
            "millstream-autopilot": self.autopilot.port,
        }
        self.prometheus = stack.enter_context(Prometheus(folder / "prometheus", ports))
        self.empty = list(queries(*OF_ALL))  # without data until now

    def see(self) -> list[Query]:
        """Look at the panels that were empty until now; returns those that still are."""
        self.empty = [query for query in self.empty if not self.prometheus.query(query.filled(**VARIABLES))]
        return self.empty

    def wait_firing(self, *alerts: str, timeout: float = 120) -> None:
        """Wait until each has fired; panels are looked at meanwhile."""
        missing = set(alerts)

        def fired() -> bool:
            self.see()
            missing.difference_update(self.prometheus.firing())
            return not missing

        self.prometheus.wait_for(fired, f"alerts {', '.join(alerts)}", timeout)

    def wait_filled(self) -> None:
        """Wait until every panel's query has returned data once."""
        try:
            self.prometheus.wait_for(lambda: not self.see(), "data for every panel")
        except TimeoutError as error:
            raise TimeoutError(f"{error} Without data: {[f'{q.panel}: {q.expr}' for q in self.empty]}") from None

    def wait_quiet(self, *alerts: str) -> None:
        """Wait until none of these fires any more."""
        self.prometheus.wait_for(lambda: not self.prometheus.firing() & set(alerts), f"{alerts} to end", 120)

    def signal_workers(self, what: signal.Signals) -> None:
        for pid in self.run.children():
            os.kill(pid, what)

    def write(self, *values: bytes, at: float | None = None) -> None:
        """Write records of now, or of another second."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for value in values:
            producer.produce(EVENTS, value, timestamp=int((at or time.time()) * 1000))
            producer.poll(0)
        assert producer.flush(30) == 0

    def fall_behind(self) -> None:
        """Write an event so often that a worker has a backlog for seconds: only then its capacity can be measured."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "one-event"})
        consumer.assign([TopicPartition(EVENTS, partition, 0) for partition in range(4)])
        message = consumer.poll(30)
        consumer.close()
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        known = "millstream_workers_needed"
        for _ in range(20):
            self.write(*[value] * 100_000)
            if self.prometheus.query(known):
                return
        self.prometheus.wait_for(lambda: bool(self.prometheus.query(known)), "the number of workers needed", 60)


def test_every_panel_of_the_models_has_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as entered:
        stack = Stack(entered, tmp_path, monkeypatch)
        late = "millstream_shadow_skipped_events_total"  # begins with the first event left out, as a busy machine does
        stack.empty = [query for query in queries(MODELS) if late not in query.expr]
        auc = 'millstream_evaluation{figure="shadow_auc"} > 0.7'
        stack.prometheus.wait_for(lambda: bool(stack.prometheus.query(auc)), "the AUC of the shadow", 300)
        stack.wait_filled()
        stack.compare.process.kill()
        stack.wait_firing("MillstreamCompareDown")


def test_every_panel_of_the_rollouts_has_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as entered:
        stack = Stack(entered, tmp_path, monkeypatch)
        ready = "millstream_workers_ready > 0 and millstream_workers_ready == millstream_workers_wanted"
        stack.prometheus.wait_for(lambda: bool(stack.prometheus.query(ready)), "workers to be ready", 180)
        pipeline = path_here("/pipeline", "millstream")
        start = [*MILLSTREAM, "rollout", "start", pipeline, CANDIDATE, "--reason", "as good as version 1"]
        subprocess.run(start, cwd=ROOT, check=True, timeout=60)
        unseen = {"Changes", "Answered by the baseline instead"}  # autopilot has still to wait, and nothing is broken
        stack.empty = [query for query in queries(ROLLOUTS) if query.panel not in unseen]
        accuracy = 'millstream_autopilot_figure{variant="canary", metric="accuracy"} > 0.7'
        stack.prometheus.wait_for(lambda: bool(stack.prometheus.query(accuracy)), "the canary's accuracy", 400)
        stack.wait_filled()
        stack.autopilot.process.kill()
        stack.wait_firing("MillstreamAutopilotMissing")


def test_alerts_fire_in_their_faults_and_every_other_panel_has_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as entered:
        stack = Stack(entered, tmp_path, monkeypatch)
        predictions = "pipeline:millstream_predictions:rate1m > 0"
        stack.prometheus.wait_for(lambda: bool(stack.prometheus.query(predictions)), "predictions", 180)
        stack.see()
        assert not stack.prometheus.firing() & AT_FAULT

        stack.write(*[BAD] * 200)
        stack.wait_firing("MillstreamDeadLetters")

        for _ in range(3):  # it is started again each time
            stack.run.wait_for(lambda: bool(stack.run.children()), "a worker", 60)
            workers = stack.run.children()
            stack.signal_workers(signal.SIGKILL)
            stack.run.wait_for(lambda gone=workers: not stack.run.children() & gone, "the worker to end", 60)  # type: ignore[misc]
        stack.wait_firing("MillstreamWorkersRestarting")
        ready = "millstream_workers_ready > 0 and millstream_workers_ready == millstream_workers_wanted"
        stack.prometheus.wait_for(lambda: bool(stack.prometheus.query(ready)), "workers to be ready", 120)

        stack.signal_workers(signal.SIGSTOP)  # workers that hang: backlog, and nobody moves it
        stack.write(BAD, at=time.time() - 600)
        stack.wait_firing("MillstreamLate", "MillstreamFallingBehind", "MillstreamPartitionStuck", "MillstreamNotReady")
        everything = [TopicPartition(EVENTS, partition, -1) for partition in range(4)]  # up to their ends
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
        for done in admin.delete_records(everything).values():
            done.result()
        stack.wait_firing("MillstreamEventsDeletedUnread")
        stack.signal_workers(signal.SIGCONT)
        stack.wait_quiet(
            "MillstreamLate", "MillstreamPartitionStuck", "MillstreamNotReady", "MillstreamEventsDeletedUnread"
        )

        stack.fall_behind()
        stack.registry.stop()
        stack.write(b"\0\0\0\x10\x93rest")  # another unknown id
        stack.wait_firing("MillstreamWaiting")
        assert [(query.panel, query.expr) for query in stack.see() if "Kafka client" not in query.panel] == []

        stack.kafka.kill()
        stack.wait_firing("MillstreamLagUnknown")
        stack.wait_filled()

        stack.run.process.kill()
        stack.wait_firing("MillstreamDown")
