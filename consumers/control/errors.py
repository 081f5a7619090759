"""The errors of the control topic."""

from millstream.consumers.errors import WorkerError


class ControlTopicError(WorkerError):
    """The control topic is missing, unfit or unreadable. Raised by `topic`, `reader` and `writer`; the caller prints it and ends.

    A worker that already follows the topic keeps its last state instead.
    """


class ChangeRefusedError(WorkerError):
    """Somebody else changed the rollout in the meantime, so the change was not written. Raised by `writer`.

    The caller prints it and ends, or looks at the new state and decides again.
    """


class CommandRefusedError(WorkerError):
    """The rollout's state doesn't allow the command, or the candidate can't take part. Raised by the command line, which ends."""
