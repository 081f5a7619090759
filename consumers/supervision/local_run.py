"""A pipeline on one machine: workers under a supervisor, as many as the load asks for, watched and served at one port."""

import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from millstream.consumers.errors import WorkersStopped
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.observability.lag_metrics import LagCollector, LagLook, LagWatch, reader_of
from millstream.consumers.supervision.autoscaler import Autoscaler, Fleet, Status
from millstream.consumers.supervision.child import CommandProcess
from millstream.consumers.supervision.merged_metrics import MergedCollector, StatusCollector
from millstream.consumers.supervision.reading import Reading, reading_of
from millstream.consumers.supervision.run_screen import Screen, counted
from millstream.consumers.supervision.scaling import Policy
from millstream.consumers.supervision.supervisor import Supervisor
from millstream.pipeline.pipeline import Pipeline

DECISION_INTERVAL = 1.0  # seconds between two decisions
POLL_INTERVAL = 0.1  # seconds between two looks after the workers
# Seconds beyond the drain time: leaving the group where no broker answers, and the interpreter's end.
EXIT_TIMEOUT = 15.0
STALL_AFTER = 30.0  # seconds without a turn after which `/live` says so


class LocalRun:
    """The supervisor, what it watches, and what is served."""

    def __init__(self, pipeline: Pipeline, policy: Policy, screen: Screen, *, instance_id_prefix: str) -> None:
        """Args:
        pipeline: what to run.
        policy: how many workers there may be.
        screen: told what happens.
        instance_id_prefix: the workers' instance IDs are this and a number.
        """
        self._pipeline = pipeline
        self._policy = policy
        self._screen = screen
        self._status: Status | None = None
        self._readings: dict[int, Reading] = {}
        self._stopping = threading.Event()
        self._ended = threading.Event()

        def start(number: int) -> CommandProcess:
            instance_id = ("--instance-id", f"{instance_id_prefix}-{number}")  # lasts over restarts
            return CommandProcess("work", pipeline.path, *instance_id, log=lambda line: screen.log(number, line))

        drain = pipeline.limits.drain_timeout + EXIT_TIMEOUT
        self._supervisor = Supervisor(start, drain_timeout=drain, say=screen.say)

    def stop(self) -> None:
        """Ask all workers to drain, and end; safe from a signal handler."""
        self._stopping.set()

    def serve(self, host: str, port: int | None) -> bool:
        """Run until told to stop; whether all workers finished what they held.

        Called by the main thread, for the workers live no longer than the thread that starts them.

        Args:
            host: address to serve metrics at.
            port: for that; 0: a free one, None: none.

        Raises:
            WorkerError: the port is taken.
            WorkersFailed: no worker gets ready.
            WorkersStopped: all workers ended because somebody has to change something.
        """
        health = RunHealth(lambda: self._status)
        server = None if port is None else HealthServer(health, self._registry(), host, port)
        if server is not None:
            self._screen.say(f"serving /metrics, /live and /ready on {server.address}")
        watch = self._watch = LagWatch(lambda: reader_of(self._pipeline), DECISION_INTERVAL)
        reading = threading.Thread(target=self._read_workers, name="metrics", daemon=True)
        try:
            self._supervisor.resize(self._policy.min_workers, time.monotonic())
            reading.start()
            self._loop(health)
            drained = self._supervisor.stop()
        except WorkersStopped:
            self._supervisor.stop()  # those that drain already
            raise
        finally:
            self._supervisor.kill()
            self._ended.set()
            watch.close()
            if server is not None:
                server.close()
        self._screen.say("all workers drained" if drained else "ended; not all workers finished what they held")
        return drained

    def _loop(self, health: Health) -> None:
        autoscaler = Autoscaler(self._policy)
        due = 0.0
        while not self._stopping.wait(POLL_INTERVAL):
            health.turn()
            now = time.monotonic()
            self._supervisor.tick(now)
            if now < due:
                continue
            due = now + DECISION_INTERVAL
            fleet = Fleet(self._supervisor.size, self._supervisor.draining, dict(self._readings))
            status = self._status = autoscaler.step(now, fleet, self._watch.latest())
            health.ready = status.ready > 0
            self._screen.show(status, self._watch.problem)
            if status.ready:
                self._supervisor.note_ready()
            self._supervisor.resize(status.decision.workers, now)
        self._screen.end_line()
        self._screen.say(f"draining {counted(self._supervisor.running)}")

    def _read_workers(self) -> None:
        """Ask each worker for its metrics, again and again; a thread of its own, for one that hangs takes a second."""
        while not self._ended.wait(DECISION_INTERVAL / 2):
            self._readings = {
                number: reading_of(text, time.monotonic(), worker.pid)
                for number, worker in self._supervisor.workers().items()
                if (text := worker.scrape()) is not None
            }

    def _lag(self) -> LagLook | None:
        return None if self._status is None else self._status.lag

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MergedCollector(lambda: {n: reading.text for n, reading in self._readings.items()}))
        registry.register(LagCollector(self._pipeline.name, self._pipeline.group_id, self._lag))
        registry.register(StatusCollector(self._pipeline.name, lambda: self._status, lambda: self._supervisor.restarts))
        return registry


class RunHealth(Health):
    """Ready while a worker is; `/ready` tells the decision."""

    def __init__(self, status: Callable[[], Status | None]) -> None:
        super().__init__(STALL_AFTER)
        self._status = status

    def readiness(self) -> tuple[bool, str]:
        """See `Health`."""
        status = self._status()
        if status is None:
            return False, "not ready: starting"
        text = f"{status.ready} ready of {counted(status.fleet.size)}; {status.decision.reason}"
        return self.ready, text
