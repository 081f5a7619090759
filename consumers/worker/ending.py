"""How a worker ends: asked to, told to give up waiting, or because a stage failed."""

import threading

from millstream.consumers.events import ResultQueue


class Ending:
    """Shared by the worker's threads."""

    def __init__(self, answers: ResultQueue) -> None:
        """Args:
        answers: what the writing stage takes; a failure ends it.
        """
        self.stopping = threading.Event()  # asked to drain and end
        self.abandon = threading.Event()  # nothing that is away is waited for any more
        self.failure: BaseException | None = None  # the first one
        self._answers = answers

    def fail(self, error: BaseException) -> None:
        """A stage ended with this."""
        self.failure = self.failure or error
        self._answers.put(None)
