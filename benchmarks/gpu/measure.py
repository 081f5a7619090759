"""One process of the bench: it opens the model on the device, and measures what it is told to, when it is told to."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from benchmarks.errors import PeerFailedError
from benchmarks.gpu.path import DataPath, Throughput, polls_for, polls_of
from millstream.inference.errors import InferenceError
from millstream.inference.executors.choice import open_executor
from millstream.inference.repository import load_version
from millstream.inference.signature import blank

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from benchmarks.gpu.subjects import Subject
    from millstream.inference.executors.interface import ModelExecutor


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is to measure."""

    stage: Literal["executor", "path"]  # the executor alone, or all stages around it
    batch: int  # events
    in_flight: int  # batches at a time
    seconds: float


def serve(connection: Connection, subject: Subject, device: str) -> None:
    """Take a task, answer None when ready for it, wait for the word to begin, answer its `Throughput`; again until closed.

    Answers a sentence, and ends, where the model can't run.
    """
    try:
        bench = Bench(subject, device)
        while True:
            measure = bench.prepare(connection.recv())
            connection.send(None)
            connection.recv()
            connection.send(measure())
    except (InferenceError, PeerFailedError) as error:
        connection.send(str(error))
    except (EOFError, ConnectionError):  # whoever asks is gone
        pass


class Bench:
    """A model on a device, and the recorded events."""

    def __init__(self, subject: Subject, device: str) -> None:
        """Args:
        subject: the model and its events.
        device: as an executor takes it.
        """
        self._subject = subject
        self._device = device
        self._model = load_version(subject.folder / "models", subject.model, 1)
        self._values = subject.events()
        self._executor: ModelExecutor | None = None
        self._batch = 0  # that the executor was opened for

    def prepare(self, task: Task) -> Callable[[], Throughput]:
        """What measures the task: model and stages are warm."""
        executor = self._open(task.batch)
        if task.stage == "executor":
            call = partial(executor.run, blank(self._model.signature.inputs, task.batch))
            _calls(call, task, 0)
            return partial(_calls, call, task, task.seconds)
        path = DataPath(
            self._subject.folder / "schemas",
            self._subject.schema,
            self._model.signature,
            executor.run,
            device=executor.device,
            max_events=task.batch,
            in_flight=task.in_flight,
        )
        path.run(polls_of(self._values[: task.batch * task.in_flight]))
        return lambda: path.run(polls_for(self._values, task.seconds))

    def _open(self, batch: int) -> ModelExecutor:
        if self._executor is None or self._batch != batch:
            if self._executor is not None:
                self._executor.close()
            self._executor = open_executor(self._model, trust=True, device=self._device, max_events=batch)
            self._executor.warm_up()
            self._batch = batch
        return self._executor


def _calls(call: Callable[[], object], task: Task, seconds: float) -> Throughput:
    """The executor called by so many threads, each once and then again as soon as it is answered."""
    start = time.monotonic()

    def repeat(_: int) -> int:
        call()
        made = 1
        while time.monotonic() < start + seconds:
            call()
            made += 1
        return made

    with ThreadPoolExecutor(task.in_flight) as threads:
        made = sum(threads.map(repeat, range(task.in_flight)))
    return Throughput(made * task.batch, time.monotonic() - start)
