"""Makes a blocking executor of an asynchronous one."""

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from millstream.inference.errors import ExecutorUnavailable, TimedOut
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.interface import (
    AsyncExecutor,
    Inputs,
    Tensors,
    check_rows,
    join_rows,
    rows_between,
    rows_of,
)
from millstream.inference.executors.loop_thread import LoopThread
from millstream.inference.executors.time_limits import TimeLimits

log = logging.getLogger(__name__)

# Seconds that an executor may exceed its time limit, for it may count from when the request was sent.
GRACE = 1.0
WARM_UP_TIMEOUT = 600.0  # seconds: a server may load the model on its first request
CLOSE_TIMEOUT = 2.0  # seconds


class TimedExecutor:
    """Runs an asynchronous executor with a time limit, and checks what it returns. Coroutines on one event loop call it."""

    def __init__(self, executor: AsyncExecutor) -> None:
        self.executor = executor
        self._limits = TimeLimits()
        self._named = f"executor {type(executor).__name__}"

    async def run(self, inputs: Inputs, timeout: float) -> dict[str, npt.NDArray[Any]]:
        """Run a micro-batch, and stop waiting if the executor itself doesn't end in time.

        Raises:
            TimedOut: there was no answer in time.
            ExecutorUnavailable: the executor's client cancelled the request.
            ModelConfigError: the executor returned more or fewer rows than events.
            InferenceError: see `AsyncExecutor.run`.
        """
        try:
            with self._limits.of(timeout + GRACE):
                outputs = await self.executor.run(inputs, timeout)
        except TimeoutError as error:
            raise TimedOut(str(error) or f"no answer within {timeout:.3g} s") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this task: a client does so with its own requests, such as gRPC's when it closes a connection. If
            # the task ended here, its events would never get a result, and nobody would notice.
            raise ExecutorUnavailable("the executor's client cancelled the request") from error
        check_rows(outputs, rows_of(inputs), self._named)
        return outputs


class BlockingExecutor:
    """Runs an asynchronous executor for callers that wait for each result. It owns the event loop.

    The worker runs its primary on `thread` directly, with many micro-batches at a time (`AsyncExecutorPool`). Shadows and
    commands use `run`.
    """

    def __init__(self, executor: AsyncExecutor, beside: "BlockingExecutor | None" = None) -> None:
        """Start the event loop.

        Args:
            executor: the asynchronous executor.
            beside: another executor, whose event loop this one shares; None: it gets a loop of its own.
        """
        self.executor = executor
        self._timed = TimedExecutor(executor)
        self.device = executor.device
        self.batch_sizes = executor.batch_sizes
        self.max_events = executor.max_events
        self.thread: LoopThread = LoopThread("remote-executor") if beside is None else beside.thread.shared()
        self.checks: list[Callable[[], object]] = []
        """Called after the warm-up; what they raise, `warm_up` raises."""
        # Commands such as `millstream predict` just end. Then the connections are closed too.
        self._close = weakref.finalize(self, _close, executor, self.thread)

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        try:
            self.thread.wait_for(self.executor.warm_up(), WARM_UP_TIMEOUT)
        except TimeoutError as error:
            raise ExecutorUnavailable(f"the warm-up did not end: {error}") from error
        for check in self.checks:
            check()

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """See `Executor.run`. The server may take fewer events than `max_events`: then one request follows another."""
        events, most = rows_of(inputs), self.executor.max_events
        if events <= most:
            return self._run(inputs)
        return join_rows([self._run(rows_between(inputs, at, min(at + most, events))) for at in range(0, events, most)])

    def close(self) -> None:
        """See `Executor.close`."""
        self._close()

    def _run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        timeout = self.executor.limits.timeout
        return self.thread.wait_for(self._timed.run(inputs, timeout), timeout + 2 * GRACE)


def _close(executor: AsyncExecutor, thread: LoopThread) -> None:
    try:
        thread.wait_for(executor.close(), CLOSE_TIMEOUT)
    except Exception as error:
        log.warning("the executor did not close: %s: %s", type(error).__name__, line_of(error))
    thread.close()
