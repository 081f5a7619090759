"""An event loop in a thread of its own, on which asynchronous executors run."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_TIMEOUT = 1.0  # seconds that the tasks on the loop have to end


class LoopThread:
    """Runs coroutines on one event loop. Any thread may call it."""

    def __init__(self, name: str) -> None:
        """Start the thread. `name` is the thread's."""
        self.loop = asyncio.new_event_loop()
        self._users = 1
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def shared(self) -> "LoopThread":
        """The thread itself, with one user more. It ends when each user has called `close`."""
        with self._counting:
            self._users += 1
        return self

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine, and return at once."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def wait_for(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine to its end, and return its result.

        Args:
            coroutine: it is cancelled if it takes too long.
            timeout: seconds.

        Raises:
            TimeoutError: it took longer.
            Exception: what the coroutine raises.
        """
        future = self.submit(coroutine)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():  # raised by the coroutine itself
                raise
            future.cancel()
            raise TimeoutError(f"no result after {timeout:g} s") from None

    def close(self) -> None:
        """Cancel all that runs, and end the thread, if no other user is left. Waits up to 1 s: a coroutine may block the loop."""
        with self._counting:
            self._users -= 1
            if self._users > 0:
                return
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_TIMEOUT / 2) if left else asyncio.sleep(0))
            self.loop.close()
