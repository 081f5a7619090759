"""Starts and ends a pipeline's workers by their instance IDs, and reads the results from Kafka at the end of a test."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from millstream.consumers.observability import metrics as m
from millstream.topics.records import bounds
from tests.broker.clients import read_all, wait_until
from tests.broker.maven import MavenKafka
from tests.consumers.processes import Worker
from tests.consumers.service import id_of, vector_service
from tests.faults.checker import RIGHT, Result, check
from tests.faults.load import Event, Stream, vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from confluent_kafka import Message

    from tests.broker.choice import Broker
    from tests.consumers.service import Service
    from tests.faults.checker import Sent, Verdict

RATE = 1500  # events a second
_BUGGY = Path(__file__).with_name("buggy_worker.py")


def buggy(bug: str, fault: str, time: int) -> tuple[str, ...]:
    """The command of a worker with a bug, and with a fault that strikes when the worker reaches its place the `time`th time."""
    return (sys.executable, "-P", str(_BUGGY), bug, fault, str(time))


class Fleet:
    """Workers of one pipeline, each with an instance ID; a context manager that ends them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._workers: dict[str, Worker] = {}

    def __getitem__(self, instance_id: str) -> Worker:
        return self._workers[instance_id]

    def stalled(self) -> list[str]:
        """The instance IDs of running workers whose loops hang."""
        return [
            instance_id
            for instance_id, worker in self._workers.items()
            if worker.get("/live")[0] != 200 and worker.running
        ]

    def start(self, *instance_ids: str, **settings: Any) -> None:
        """Start a worker with each instance ID; those before must have ended. `settings` are `Worker`'s."""
        for instance_id in instance_ids:
            assert instance_id not in self._workers or not self._workers[instance_id].running
            self._workers[instance_id] = Worker(self._service.file, "--instance-id", instance_id, **settings)

    def wait_ready(self) -> None:
        """Wait until all workers have partitions."""
        for worker in self._workers.values():
            worker.wait_ready()

    def wait_written(self) -> None:
        """Wait until each worker has written a result."""
        for instance_id, worker in self._workers.items():
            written = partial(_has_written, worker)
            worker.wait_for(written, 60, f"at work as {instance_id}")

    def wait_committed(self, more: int, *, revive: bool = False) -> None:
        """Wait until the offsets of so many more events are committed; `revive` as in `finish`, and then until all are ready."""
        until: int | None = None

        def reached() -> bool:
            nonlocal until
            self._look_after(revive=revive)
            done = committed(self._service)
            if until is None and done is not None:
                until = done + more
            enough = until is not None and done is not None and done >= until
            return enough and (not revive or self._all_ready())

        wait_until(reached, 90, f"{more} more events to be committed")

    def discard(self, instance_id: str) -> None:
        """Forget a worker that has ended."""
        assert not self._workers.pop(instance_id).running

    def kill(self, *instance_ids: str) -> None:
        """Kill workers, like a crash."""
        for instance_id in instance_ids:
            self._workers[instance_id].send(signal.SIGKILL)
        for instance_id in instance_ids:
            assert self._workers.pop(instance_id).wait() == -signal.SIGKILL

    def stop(self, *instance_ids: str, failed: bool = False) -> None:
        """Drain workers; each must end with 0, or with 1 where some may have `failed` in an outage without knowing it yet."""
        for instance_id in instance_ids:
            self._workers[instance_id].send(signal.SIGTERM)
        for instance_id in instance_ids:
            log = self._workers[instance_id].log
            assert self._workers[instance_id].wait() in ({0, 1} if failed else {0}), log
            assert "Traceback" not in log, log
            del self._workers[instance_id]

    def revive(self, crashed: int | None = None) -> list[str]:
        """Restart workers that ended by themselves, like a supervisor; returns their instance IDs.

        They must have said why, or have ended with the code `crashed`.
        """
        ended = [instance_id for instance_id, worker in self._workers.items() if not worker.running]
        for instance_id in ended:
            log = self._workers[instance_id].log
            assert self._workers[instance_id].wait() in {0, 1, crashed}, log
            assert "Traceback" not in log, log
            self.start(instance_id)
        return ended

    def finish(self, stream: Stream, *, revive: bool = False) -> list[Sent]:
        """Stop sending, wait until all events have results, and drain all workers; returns the events sent."""
        sent = stream.stop()

        def done() -> bool:
            self._look_after(revive=revive)
            # A worker that is still starting can't drain yet.
            return all_committed(self._service) and self._all_ready()

        try:
            wait_until(done, 150, f"{len(sent)} events to be answered and committed")
        except TimeoutError as late:
            raise TimeoutError(f"{late} {self._standing()}") from None
        self.stop(*list(self._workers), failed=revive)
        return sent

    def _standing(self) -> str:
        """A sentence about the progress."""
        try:
            found = f"Committed {self._service.committed()} of {self._service.input_ends()}"
        except KafkaException as error:
            found = f"What is committed is not known: {error}"
        ready = {instance_id: worker.get("/ready") for instance_id, worker in self._workers.items()}
        return f"{found}; ready: {ready}."

    def _all_ready(self) -> bool:
        return all(worker.get("/ready")[0] == 200 for worker in self._workers.values())

    def _look_after(self, *, revive: bool) -> None:
        """Check that all workers run. With `revive`, a worker that ended is restarted at the next check."""
        if revive:
            self.revive()
            return
        for instance_id, worker in self._workers.items():
            assert worker.running, f"worker {instance_id} ended:\n{worker.log}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.__exit__(kind, error, trace)


@contextmanager
def under_load(
    folder: Path,
    kafka: Broker,
    seed: int,
    *,
    rate: int = RATE,
    through: str | None = None,
    load: Callable[[int], Iterator[Event]] = vectors,
    **sections: Any,
) -> Iterator[tuple[Service, Fleet, Stream]]:
    """A service for the events of `load`, exactly once where `sections` say nothing else, with its load; workers are yours.

    Workers reach the broker `through` another address where one is given.
    """
    # The test kills workers; no event does. So the workers must not search for an event that crashes them, which takes time.
    defaults: dict[str, Any] = {"delivery": "exactly_once", "limits": {"crash_attempts": 1000}}
    service = vector_service(folder, kafka, **defaults | sections)
    if through is not None:
        change(service, kafka={"bootstrap": through})
    with Stream(service.bootstrap, service.inputs[0], load(seed), rate) as stream, Fleet(service) as fleet:
        yield service, fleet, stream


def change(service: Service, **sections: Any) -> None:
    """Replace sections of the pipeline file."""
    document = yaml.safe_load(service.file.read_text(encoding="utf-8"))
    service.file.write_text(yaml.safe_dump(document | sections, sort_keys=False), encoding="utf-8")


def configure(service: Service, topic: str, **settings: str) -> None:
    """Change a topic's settings; they are written with underscores."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in settings.items():
        entry = ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
    admin = AdminClient({"bootstrap.servers": service.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()


class FreezableKafka(MavenKafka):
    """A broker whose process can be stopped and continued."""

    def freeze(self) -> None:
        """Stop its process (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue its process."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)


def verdict_of(service: Service, sent: Sequence[Sent]) -> Verdict:
    """Check the results that a read-committed reader finds, once no transaction is open any more."""
    wait_until(lambda: no_transaction_open(service), 60, "the last transaction's end to reach the output topics")
    at = {(event.partition, event.offset): event.id for event in sent}
    key_at = {(event.partition, event.offset): event.key for event in sent}
    letters = [
        # A dead letter lacks the key if its topic doesn't accept the key's size.
        Result(at.get(source, f"letter {source}"), message.key() or key_at.get(source, b""), *_place(message))
        for message in read_all(service.bootstrap, service.letters)
        if (source := _source(message))
    ]
    predictions = [Result(id_of(message), _key(message), *_place(message)) for message in service.predictions()]
    committed = {partition: offset for (_, partition), offset in service.committed().items()}
    return check(sent, predictions + letters, committed)


def assert_exactly_once(service: Service, sent: Sequence[Sent]) -> None:
    """Assert that each event has one result, each key keeps its order, and all offsets are committed."""
    assert sent
    verdict = verdict_of(service, sent)
    assert verdict == RIGHT, str(verdict)
    # No worker commits any more. This only waits for a partition that has just got a new leader.
    wait_until(lambda: all_committed(service), 10, "the committed offsets to be the topics' ends")


def stopped(worker: Worker) -> bool:
    """Whether the worker's process is stopped."""
    return Path(f"/proc/{worker.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"


def _has_written(worker: Worker) -> bool:
    return worker.metrics().get(m.PREDICTIONS.name, 0) > 0


def all_committed(service: Service) -> bool:
    """Whether all events of the input topic are committed; also False if an open transaction or an outage hides the offsets."""
    try:
        return service.committed() == service.input_ends()
    except KafkaException:
        return False


def committed(service: Service) -> int | None:
    """How many events are committed; None if an open transaction or an outage hides the offsets."""
    try:
        return sum(service.committed().values())
    except KafkaException:
        return None


def no_transaction_open(service: Service) -> bool:
    """Whether readers of committed records see all records of the output topics."""
    try:
        return _ends(service, "read_committed") == _ends(service, "read_uncommitted")
    except KafkaException:  # a partition that has a new leader
        return False


def _ends(service: Service, isolation: str) -> list[int]:
    """The end of each output partition, as a reader with this isolation level sees it."""
    settings = {"bootstrap.servers": service.bootstrap, "group.id": "asking", "isolation.level": isolation}
    consumer = Consumer(settings)
    try:
        return [
            bounds(consumer, topic, partition)[1]
            for topic in (service.output, service.letters)
            for partition in sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        ]
    finally:
        consumer.close()


def _key(message: Message) -> bytes:
    key = message.key()
    assert isinstance(key, bytes)
    return key


def _place(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def _source(message: Message) -> tuple[int, int]:
    """The input partition and offset that a dead letter names in its headers."""
    headers = dict(message.headers() or [])
    return int(headers["millstream.source.partition"] or -1), int(headers["millstream.source.offset"] or -1)
