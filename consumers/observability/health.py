"""The worker's HTTP port: `/metrics`, `/live` and `/ready`."""

import threading
import time
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.http_port import TEXT_TYPE, Answer, HttpPort


class Health:
    """The state that the probes report: whether the worker's loop runs, and whether the worker processes events."""

    def __init__(self, stall_after: float, loop: str = "the worker's loop") -> None:
        """Args:
        stall_after: seconds without a turn of the loop after which the worker is no longer live.
        loop: how messages call the loop.
        """
        self.stall_after = stall_after
        self.loop = loop
        self.turned = time.monotonic()  # when the last turn of the loop began
        self.ready = False
        self.waiting_for = ""  # why the worker is not ready
        self.broker_away: str | None = None  # a sentence while no broker answers
        self._answered = self.turned  # when the last outage of the broker ended
        self.connections_lost = False  # whether clients have lost brokers since the consumer was last seen to find one
        # (what is away, the thread that waits for it) -> the error, and whether the worker reads no more events meanwhile
        self._away: dict[tuple[str, int], tuple[str, bool]] = {}

    def turn(self) -> None:
        """Note a turn of the loop."""
        self.turned = time.monotonic()

    def broker_answers(self) -> None:
        """Note the end of the broker's outage."""
        self._answered = time.monotonic()
        self.broker_away = None

    def away(self, what: str, error: str, *, stops_reading: bool = True) -> None:
        """Note an outage that the calling thread waits for. The worker is not ready meanwhile."""
        self._away[what, threading.get_ident()] = error, stops_reading

    def back(self, what: str) -> None:
        """Note that the calling thread does not wait for this any more."""
        self._away.pop((what, threading.get_ident()), None)

    @property
    def outage(self) -> str | None:
        """The error of an outage, as a sentence; None: there is none."""
        return next((error for error, _ in list(self._away.values())), None)

    @property
    def stops_reading(self) -> bool:
        """Whether an outage keeps the worker from reading more events."""
        return any(stops for _, stops in list(self._away.values()))

    def live(self) -> tuple[bool, str]:
        """Whether the loop runs, and a sentence.

        A call may wait for the broker as long as an outage lasts, so only the time after it counts.
        """
        if self.broker_away is not None:
            return True, f"{self.loop} may wait: {self.broker_away}"
        age = time.monotonic() - max(self.turned, self._answered)
        return (
            age < self.stall_after,
            f"{self.loop} turned {age:.1f} s ago (stalled after {self.stall_after:g} s)",
        )

    def readiness(self) -> tuple[bool, str]:
        """Whether the worker processes events, and a sentence."""
        if (outage := self.broker_away or self.outage) is not None:
            return False, f"not ready: {outage}"
        live, said = self.live()
        if self.ready and not live:
            return False, f"not ready: {said}"
        return self.ready, "ready" if self.ready else f"not ready: {self.waiting_for or 'starting'}"


class HealthServer:
    """Serves a worker's health and metrics."""

    def __init__(
        self, health: Health, registry: CollectorRegistry, host: str, port: int, *, option: str = "--metrics-port"
    ) -> None:
        """Bind the port; 0 takes a free one. `option` is its name on the command line.

        Raises:
            WorkerError: the port is taken.
        """

        def answer(path: str) -> Answer:
            if path == "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)
            if path in {"/live", "/ready"}:
                good, text = health.live() if path == "/live" else health.readiness()
                return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, TEXT_TYPE, f"{text}\n".encode()
            return HTTPStatus.NOT_FOUND, TEXT_TYPE, b"/metrics, /live or /ready\n"

        try:
            self._port = HttpPort(host, port, answer)
        except OSError as error:
            reason = str(error.strerror).partition(" (while attempting")[0]  # Python repeats the address
            raise WorkerError(
                f"the metrics port {host}:{port} can't be opened: {reason}. "
                f"Choose another with {option}, or 0 for a free one."
            ) from None
        self.port = self._port.port
        self.address = f"port {self.port} of {host}"

    def close(self) -> None:
        """Stop serving."""
        self._port.close()
