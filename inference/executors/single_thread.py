"""A thread that makes all calls of something that only one thread may call."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class SingleThread:
    """Makes calls for other threads, one at a time. A call that hangs doesn't keep the process from ending."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T]) -> T:
        """Call the function in the thread, and wait for it. Returns what it returns, raises what it raises."""
        future: Future[T] = Future()
        self._calls.put((future, function))
        return future.result()

    def close(self) -> None:
        """End the thread after the calls that wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (waiting := self._calls.get()) is not None:
            future, function = waiting
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del waiting, future, function  # or inputs and results would live until the next call
