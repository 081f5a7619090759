"""Several processes that share a device, as workers do, and measure at the same time."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from benchmarks.errors import LeftOutError, PeerFailedError
from benchmarks.gpu.measure import Task, serve
from benchmarks.gpu.utilisation import gpu_utilisation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu.path import Throughput
    from benchmarks.gpu.subjects import Subject

END = 10.0  # seconds that a process has to end


@dataclass(frozen=True, slots=True)
class Found:
    """What all processes did together."""

    rate: float  # events/s
    busy: float | None  # percent of the time that the GPU was busy; None without one


class Workers:
    """So many processes with a model on one device. A context: they end with it."""

    def __init__(self, count: int, subject: Subject, device: str) -> None:
        """Args:
        count: of the processes.
        subject: the model and its events.
        device: cpu or cuda.
        """
        self._workers = [_Worker(subject, device) for _ in range(count)]

    def measure(self, task: Task) -> Found:
        """What the processes do together, each this task, once all are ready.

        Raises:
            LeftOutError: the model can't run on the device.
            PeerFailedError: a process has ended.
        """
        for worker in self._workers:
            worker.send(task)
        for worker in self._workers:
            worker.receive()
        with gpu_utilisation() as seen:
            for worker in self._workers:
                worker.send("begin")
            found = [done for worker in self._workers if (done := worker.receive())]
        return Found(together(found), round(sum(seen) / len(seen), 1) if seen else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()


def together(found: Sequence[Throughput]) -> float:
    """Events/s of what ran at the same time: until the last was done."""
    return round(sum(one.events for one in found) / max(one.seconds for one in found), 1)


class _Worker:
    def __init__(self, subject: Subject, device: str) -> None:
        # A process of its own from the start: one that is forked can't use its parent's CUDA.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, subject, device), daemon=True)
        self._process.start()
        theirs.close()  # so that ours says when the process has ended

    def send(self, message: Task | str) -> None:
        with suppress(OSError):  # it has ended, and `receive` says why
            self._connection.send(message)

    def receive(self) -> Throughput | None:
        try:
            answer: Throughput | str | None = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise PeerFailedError(f"a process ended by itself (exit code {self._process.exitcode})") from None
        if isinstance(answer, str):
            raise LeftOutError(answer)
        return answer

    def end(self) -> None:
        self._connection.close()  # it ends when it next looks there
        self._process.join(END)
        self._process.kill()
