"""Runs a pipeline on one machine: as many workers as the load needs, under a supervisor, with one port for all metrics."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry

from millstream.consumers.errors import WorkersStopped
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.observability.json_log import as_text
from millstream.consumers.observability.lag_metrics import LagCollector, LagLook, LagWatch, reader_of
from millstream.consumers.observability.totals import Totals, total
from millstream.consumers.supervision.autoscaler import Autoscaler, Fleet, Status
from millstream.consumers.supervision.child import CommandProcess
from millstream.consumers.supervision.file_change import FileChange
from millstream.consumers.supervision.merged_metrics import MergedCollector, StatusCollector
from millstream.consumers.supervision.reading import Reading, reading_of
from millstream.consumers.supervision.run_screen import Screen
from millstream.consumers.supervision.scaling import Policy
from millstream.consumers.supervision.supervisor import Supervisor, Worker
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.wording import counted

DECISION_INTERVAL = 1.0  # seconds between two decisions
POLL_INTERVAL = 0.1  # seconds between two checks of the workers
# Seconds beyond the drain time: a worker may have to leave the group without a broker, and Python has to exit.
EXIT_TIMEOUT = 15.0
STALL_AFTER = 30.0  # seconds without a turn of the loop after which `/live` fails


class LocalRun:
    """Connects the supervisor, the lag, the scaling decision, and the port for metrics and probes."""

    def __init__(
        self,
        pipeline: Pipeline,
        policy: Policy,
        screen: Screen,
        *,
        environ: Mapping[str, str],
        instance_id_prefix: str,
        log_options: Sequence[str] = (),
    ) -> None:
        """Args:
        pipeline: the pipeline to run.
        policy: the limits and targets of the scaling decision.
        screen: shows what happens.
        environ: the environment variables that the pipeline file may name.
        instance_id_prefix: the workers' instance IDs are this prefix and a number.
        log_options: the workers' options for their log.
        """
        self._pipeline = pipeline
        self._policy = policy
        self._screen = screen
        self._status: Status | None = None
        self._readings: dict[int, Reading] = {}
        self._stopping = threading.Event()
        self._at_once = threading.Event()
        self._stopped_by = "Ctrl-C"  # what the user did
        self._ended = threading.Event()
        self._started = 0  # workers, with those that were restarted
        self._totals: list[Totals] = []  # of the workers that ended
        change = FileChange(pipeline, environ)

        def start(number: int) -> CommandProcess:
            instance_id = ("--instance-id", f"{instance_id_prefix}-{number}")  # a restarted worker keeps it
            self._started += 1
            if (changed := change.said(number)) is not None:
                screen.say(changed)
            return CommandProcess(
                "work", pipeline.path, *instance_id, *log_options, log=lambda line: self._log(number, line)
            )

        drain = pipeline.limits.drain_timeout + EXIT_TIMEOUT
        self._supervisor = Supervisor(
            start, misread=change.may_be_half_saved, drain_timeout=drain, say=partial(screen.say, level=logging.WARNING)
        )

    def stop(self, how: str) -> None:
        """Drain all workers and end. A signal handler may call this. `how`: what the user did, such as Ctrl-C."""
        self._stopped_by = how
        self._stopping.set()

    def stop_at_once(self) -> None:
        """End without finishing the events in flight. As `stop`."""
        self._at_once.set()
        self._stopping.set()

    def serve(self, host: str, port: int | None) -> bool:
        """Run until `stop` is called; returns whether all workers ran then, and finished their events in flight.

        The main thread calls this, because workers end with the thread that starts them.

        Args:
            host: address to serve metrics and probes on.
            port: port to serve them on; 0: a free one, None: don't serve them.

        Raises:
            WorkerError: the port is taken.
            WorkersFailed: no worker gets ready.
            WorkersStopped: all workers ended with an error that a restart doesn't solve.
        """
        health = RunHealth(self._status_now, lambda: self._watch.problem, self._not_ready)
        server = None if port is None else HealthServer(health, self._registry(), host, port)
        if server is not None:
            self._screen.say(f"serving /metrics, /live and /ready on {server.address}")
        watch = self._watch = LagWatch(lambda: reader_of(self._pipeline), DECISION_INTERVAL)
        reading = threading.Thread(target=self._read_workers, name="metrics", daemon=True)
        try:
            self._supervisor.resize(self._policy.min_workers, time.monotonic())
            reading.start()
            self._loop(health)
            broken = self._supervisor.broken
            drained = self._supervisor.stop(self._at_once)
        except WorkersStopped:
            self._supervisor.stop(self._at_once)  # wait for the workers that already drain
            raise
        finally:
            self._supervisor.kill()
            self._ended.set()
            self._say_totals()
            watch.close()
            if server is not None:
                server.close()
        if drained:
            self._screen.say("all workers drained")
        else:
            self._screen.say("ended; not all workers finished their events in flight", logging.WARNING)
        if broken:
            said = f"{counted(broken, 'worker')} had ended by an error before, which the lines above tell"
            self._screen.say(said, logging.WARNING)
        return drained and not broken

    def _loop(self, health: "RunHealth") -> None:
        autoscaler = Autoscaler(self._policy)
        due = 0.0
        while not self._stopping.wait(POLL_INTERVAL):
            health.turn()
            now = time.monotonic()
            self._supervisor.tick(now)
            if now < due:
                continue
            due = now + DECISION_INTERVAL
            supervised = self._supervisor
            fleet = Fleet(supervised.size, supervised.draining, dict(self._readings), supervised.given_up)
            status = self._status = autoscaler.step(now, fleet, self._watch.latest())
            health.ready = status.ready > 0
            self._screen.show(status, self._watch.problem)
            if status.ready:
                self._supervisor.note_ready()
            self._supervisor.resize(status.decision.workers, now)
        health.draining = lambda: self._supervisor.draining
        self._screen.end_line()
        self._screen.say(
            f"draining {counted(self._supervisor.running, 'worker')}. Events in flight are finished and committed, for at most "
            f"{self._pipeline.limits.drain_timeout:g} s (limits.drain_timeout). A second {self._stopped_by} stops them at once"
        )

    def _read_workers(self) -> None:
        """Read each worker's metrics again and again. Runs in its own thread: a worker that hangs delays it by 1 s."""
        while not self._ended.wait(DECISION_INTERVAL / 2):
            self._readings = {
                number: reading_of(text, time.monotonic(), worker.pid)
                for number, worker in self._supervisor.workers().items()
                if (text := worker.scrape()) is not None
            }

    def _status_now(self) -> Status | None:
        """The last status, without the workers that have ended since: a worker that was killed is not ready."""
        status, workers = self._status, self._supervisor.workers()
        if status is None:
            return None
        ready = sum(reading.ready and _runs(workers.get(n), reading) for n, reading in status.fleet.readings.items())
        return replace(status, ready=ready)

    def _not_ready(self) -> str:
        """What the workers that aren't ready wait for; empty: no worker says so."""
        waiting: dict[str, list[str]] = {}
        for number, worker in sorted(self._supervisor.workers().items()):
            reading = self._readings.get(number)
            if (reading is None or not reading.ready) and (said := worker.readiness()) is not None:
                waiting.setdefault(said.strip(), []).append(f"worker {number}")
        return "; ".join(f"{' and '.join(workers)}: {said}" for said, workers in waiting.items())

    def _log(self, number: int, line: str) -> None:
        if (totals := Totals.of_line(as_text(line))) is not None:
            self._totals.append(totals)
        self._screen.log(number, line)

    def _say_totals(self) -> None:
        if not self._totals:
            return
        totals, uncounted = total(self._totals), max(self._started - len(self._totals), 0)
        lost = f"; without {counted(uncounted, 'worker')} that ended without a count" if uncounted else ""
        self._screen.say(f"{totals} (of {counted(len(self._totals), 'worker')}{lost})")
        if (advice := totals.advice(self._pipeline.named_in_log)) is not None:
            self._screen.say(advice)

    def _lag(self) -> LagLook | None:
        return None if self._status is None else self._status.lag

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MergedCollector(lambda: {n: reading.text for n, reading in self._readings.items()}))
        registry.register(LagCollector(self._pipeline.name, self._pipeline.group_id, self._lag))
        registry.register(StatusCollector(self._pipeline.name, lambda: self._status, lambda: self._supervisor.restarts))
        return registry


def _runs(worker: Worker | None, reading: Reading) -> bool:
    """Whether the worker is the process that the reading is of, and has not ended."""
    return worker is not None and worker.pid == reading.pid and worker.status() is None


class RunHealth(Health):
    """Ready while a worker is ready, until the run stops; `/ready` also shows the decision, and why a worker isn't ready."""

    def __init__(
        self, status: Callable[[], Status | None], problem: Callable[[], str], not_ready: Callable[[], str]
    ) -> None:
        """Args:
        status: what runs; None: nothing yet.
        problem: why the last measurement of the lag failed, such as a broker that is away; empty: it did not.
        not_ready: what a worker that isn't ready says; empty: none says anything.
        """
        super().__init__(STALL_AFTER)
        self._status = status
        self._problem = problem
        self._not_ready = not_ready
        self.draining: Callable[[], int] | None = None  # once the run stops: how many workers still drain

    def readiness(self) -> tuple[bool, str]:
        """See `Health`."""
        if self.draining is not None:
            return False, f"stopping: {counted(self.draining(), 'worker')} left to drain"
        status = self._status()
        if status is None:
            return False, "not ready: starting"
        text = f"{status.ready} ready of {counted(status.fleet.size, 'worker')}; {status.reason}"
        if status.lag is None and (problem := self._problem()):
            text += f"; the lag is unknown: {problem.removesuffix('.')}"
        if status.ready < status.fleet.size and (said := self._not_ready()):
            text += f"; {said}"
        return self.ready and status.ready > 0, text
