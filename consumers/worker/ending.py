"""Why a worker ends: it is asked to, it must not wait any longer, or a stage failed."""

import threading

from millstream.consumers.events import ResultQueue


class Ending:
    """Shared by the worker's threads."""

    def __init__(self, answers: ResultQueue) -> None:
        """Args:
        answers: the queue of the write thread. After a failure it gets None, which ends the thread.
        """
        self.stopping = threading.Event()  # set: drain, then end
        self.at_once = threading.Event()  # set: end without draining
        self.abandon = threading.Event()  # set: stop waiting for Kafka, the schemas or the executor
        self.failure: BaseException | None = None  # the first one
        self._answers = answers

    def fail(self, error: BaseException) -> None:
        """Note the error that ended a stage."""
        self.failure = self.failure or error
        self._answers.put(None)
