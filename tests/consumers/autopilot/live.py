"""A rollout with real workers and autopilots: a stream of events, labels that come late, and each event accounted for.

Version N predicts N, so a version's absolute error is its distance from the truth of the labels.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from millstream.consumers.cli.main import run as run_command
from millstream.consumers.control.topic import open_reader
from millstream.consumers.schema_store import open_store
from tests.broker.clients import create_topic, produce, wait_until
from tests.consumers.processes import Worker
from tests.consumers.serving.rollout_scene import RolloutScene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.consumers.rollout.record import RolloutRecord
    from tests.broker.choice import Broker

LATE = 1.0  # seconds after their events, at which labels come
MATURITY = 3.0  # seconds
SOON = 100.0  # seconds in which a rollout should come to its end, on a machine that is busy with other tests
ROLLOUT: dict[str, Any] = {
    "strategy": "canary",
    "steps": [50],
    "bake": "2s",
    "watch": "1s",
    "least_labels": 50,
    "metrics": {
        "absolute_error": {"margin": 0.3},
        # These are judged by many more events than a test has, or depend on the machine.
        "errors": {"margin": 0.2},
        "dead_letters": {"margin": 0.2},
        "latency": {"quantile": 0.5, "at_most": 1000},
    },
}


class AutopilotProcess(Worker):
    """As `Worker`: a process of `millstream autopilot`."""

    command = "autopilot"

    def is_active(self) -> bool:
        """Whether it decides."""
        return self.metrics().get("millstream_autopilot_active") == 1

    def wait_active(self) -> AutopilotProcess:
        self.wait_for(self.is_active, 60, "active")
        return self


class Live(RolloutScene):
    """See the module."""

    def __init__(self, folder: Path, kafka: Broker, *versions: int, truth: float = 2.0, **rollout: Any) -> None:
        sections = rollout.pop("sections", {})
        topic = f"{folder.name[:40]}-labels-{time.time_ns()}"
        super().__init__(
            folder,
            kafka,
            *versions,
            rollout={**ROLLOUT, **rollout},
            labels={"topic": topic, "format": "json", "event_id": "event", "value": "truth", "wait": f"{MATURITY:g}s"},
            comparison={"task": "regression", "output": "score", **sections.pop("comparison", {})},
            **sections,
        )
        self.truth = truth
        self.labels = topic
        create_topic(kafka.bootstrap, topic, 2, {})
        assert run_command(["topics", "create", str(self.service.file)]) == 0

    def autopilot(self) -> AutopilotProcess:
        """A new process."""
        return AutopilotProcess(self.service.file)

    def worker(self) -> Worker:
        """A new process."""
        return Worker(self.service.file)

    def rollout(self, *arguments: str) -> int:
        """`millstream rollout ARGUMENTS`; the first one is the action."""
        action, *rest = arguments
        return run_command(["rollout", action, str(self.service.file), *rest])

    def history(self) -> list[RolloutRecord]:
        """All changes that count."""
        with open_reader(self.pipeline, open_store(self.pipeline)) as reader:
            return [own.record for own in reader.read_to_end() if own.counts and own.record is not None]

    def newest(self) -> RolloutRecord | None:
        history = self.history()
        return history[-1] if history else None

    def wait_state(self, state: str, timeout: float = SOON) -> RolloutRecord:
        """Wait until the rollout has this state."""

        def reached() -> bool:
            record = self.newest()
            return record is not None and record.state == state

        wait_until(reached, timeout, f"the rollout to be {state}")
        record = self.newest()
        assert record is not None
        return record

    @contextmanager
    def traffic(self, rate: int = 300) -> Iterator[None]:
        """Send events and, later, their labels, until the block ends; then wait until each event has its result."""
        stop = threading.Event()
        thread = threading.Thread(target=self._send, args=(rate, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self.service.wait_committed(120)

    def _send(self, rate: int, stop: threading.Event) -> None:
        waiting = deque[tuple[float, int, int]]()  # when labels are due, and of which events
        while not stop.is_set():
            begun, first = time.monotonic(), self.sent
            self.send(max(1, rate // 5), wait=False)
            waiting.append((begun + LATE, first, self.sent))
            while waiting and waiting[0][0] <= time.monotonic():
                self._label(*waiting.popleft()[1:])
            stop.wait(max(0.0, begun + 0.2 - time.monotonic()))

    def _label(self, first: int, last: int) -> None:
        rows = [
            (None, json.dumps({"event": f"event-{number:010d}", "truth": self.truth + (number % 7 - 3) / 50}).encode())
            for number in range(first, last)
        ]
        produce(self.service.bootstrap, self.labels, rows)

    def account(self) -> Counter[str]:
        """Check that each event has one prediction, of the version that it names, by a rule of the revision that it names.

        Returns:
            how many events each variant has.
        """
        revisions = {own.revision: own for own in self.history()}
        for before, after in pairwise(revisions.values()):
            assert after.replaces == before.revision
        rows = self.predictions()
        for row in rows:
            choice = row["rollout"]
            if choice is None:
                assert (row["variant"], row["version"]) == ("primary", 1)
                continue
            record = revisions[choice["revision"]]
            names = [own.name for own in record.variants]
            shown = record.variants[names.index(row["variant"])]
            assert (row["version"], choice["id"]) == (shown.version, record.rollout)
            share = record.shares[names.index(choice["assigned"])] / 10_000
            assert abs(choice["propensity"] - share) < 1e-9
        return Counter(row["variant"] for row in rows)
