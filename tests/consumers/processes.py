"""Workers as their users run them: processes of `millstream work`, watched through their HTTP port and their log."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.supervision.child import MILLSTREAM, reported_port
from millstream.topics.local.child import start
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType


class Worker:
    """One worker process; a context manager that leaves none behind."""

    command = "work"

    def __init__(
        self,
        pipeline: Path,
        *options: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = MILLSTREAM,
    ) -> None:
        self._log = pipeline.with_name(f"{self.command}-{os.urandom(4).hex()}.log")
        command = [*program, self.command, str(pipeline), "--metrics-port", "0"]
        self._process = start([*command, *options], self._log, cwd=cwd, env={**os.environ, **(env or {})})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What the worker has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout: float = 60) -> Self:
        """Wait until `/ready` says 200."""
        self.wait_for(lambda: self.get("/ready")[0] == 200, timeout, "ready")
        return self

    def wait_for(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Wait for something that a running worker does; its log is in the error where it doesn't."""

        def holds() -> bool:
            if not self.running:
                raise AssertionError(f"The worker ended before it was {what}. Its log:\n{self.log}")
            return condition()

        try:
            wait_until(holds, timeout, f"a worker to be {what}")
        except TimeoutError as error:
            raise TimeoutError(f"{error} Its log:\n{self.log}") from None

    def get(self, path: str) -> tuple[int, str]:
        """GET from the worker's port; status 0 where nothing answers yet."""
        port = reported_port(self.log)
        if port is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def rebalances(self) -> float:
        """How often the group has given it partitions, also none."""
        return self.metrics()["millstream_rebalances_total{kind=assigned}"]

    def metrics(self) -> dict[str, float]:
        """All samples: `name` with the sum over its labels, and `name{label=value,...}` (without the pipeline) for each."""
        samples: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = ",".join(
                    f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "pipeline"
                )
                samples[sample.name] = samples.get(sample.name, 0.0) + sample.value
                if labels:
                    samples[f"{sample.name}{{{labels}}}"] = sample.value
        return samples

    def send(self, what: signal.Signals) -> None:
        """Send a signal and go on."""
        self._process.send_signal(what)

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout: float = 40) -> int:
        """Tell the worker to end; returns its exit code."""
        self.send(how)
        return self._process.wait(timeout)

    def wait(self, timeout: float = 60) -> int:
        """Wait until the worker ends by itself; returns its exit code."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"The worker still runs after {timeout} s. Its log:\n{self.log}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()
        if error is not None:
            error.add_note(f"The worker's log ends:\n{self.log[-3000:]}")


def wait_balanced(*workers: Worker, partitions: int) -> None:
    """Wait until these workers of a group have so many partitions each."""
    for worker in workers:
        worker.wait_for(partial(_has_partitions, worker, partitions), 60, "balanced")


def _has_partitions(worker: Worker, partitions: int) -> bool:
    return worker.metrics()["millstream_assigned_partitions"] == partitions
