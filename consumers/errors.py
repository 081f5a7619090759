"""What can go wrong while a worker runs."""

from typing import ClassVar

from millstream.schemas.failures import Failure

NEEDS_CHANGE = 3
"""Exit code of a worker that would end the same way after a restart: somebody has to change something first."""


class WorkerError(Exception):
    """Base of this package's errors; the message says what to do. The command line prints it and exits with 1."""

    failure: ClassVar[Failure] = "stop"  # see `schemas.failures`


class PlanError(WorkerError):
    """The pipeline's parts don't fit each other. Raised by `plan` before anything runs; the caller ends."""


class DeliveryFailed(WorkerError):  # noqa: N818
    """An output record could not be written for good.

    Raised by `sink`. Nothing above it was committed, so the worker ends and its successor reads those events again.
    """


class TransactionAborted(WorkerError):  # noqa: N818
    """The broker took the transaction back, or would. Raised by `delivery`; the writer aborts, and the loop reads again."""


class InstanceIdTaken(WorkerError):  # noqa: N818
    """Another worker has this instance ID. Raised by `instance_id` at start, and by `delivery` when a later one took over.

    The worker ends.
    """


class Abandoned(WorkerError):  # noqa: N818
    """The worker was told to stop waiting (the drain time is over). Raised inside the stages; it ends them, uncommitted."""


class WorkersFailed(WorkerError):  # noqa: N818
    """No worker gets ready. Raised by `supervisor` with the log of one; the caller ends."""


class WorkersStopped(WorkerError):  # noqa: N818
    """Each worker ended with `NEEDS_CHANGE`. Raised by `supervisor` with the message of the last one; the caller ends."""


class StageFailed(WorkerError):  # noqa: N818
    """A stage's thread ended by an error of its own. Raised by `worker` with that error as its cause."""


class EventRefused(WorkerError):  # noqa: N818
    """An event was refused for a reason at which the pipeline is to stop (`on_error`).

    Raised by `sink`, once all before it is written; the writer commits that. The worker ends with `NEEDS_CHANGE`, because its
    successor would come to the same event.
    """

    ends: dict[tuple[str, int], tuple[int, int]]  # how far that brings the partitions, see `events.NextOffsets`
    batches: int = 0  # of those handed to the sink in one call, so many are written, the event's own up to the event

    def __init__(self, partition: tuple[str, int], offset: int, reason: str, error: str) -> None:
        topic, number = partition
        super().__init__(
            f"the event at offset {offset} of {topic}/{number} was refused ({reason}): {error}. The pipeline stops there "
            f"(`on_error.stop` names {reason}); all before it is committed. Mend what makes the event fail, such as the model or "
            f"the mapping, and start again. To pass over this event, take {reason} out of `on_error.stop` until its "
            f"dead letter is written."
        )
        self.ends = {}


class OffsetsRewound(WorkerError):  # noqa: N818
    """The client gave records again that were read already. Raised by `forward`; the loop reads again from what is committed."""


class ReadBelowCommitted(WorkerError):  # noqa: N818
    """The client began below the committed offset. Raised by `forward`; the worker ends, and its successor reads on."""


def as_worker_error(failure: BaseException) -> WorkerError:
    """What ended a worker, with a message for the user: any other error becomes `StageFailed` with it as the cause."""
    if isinstance(failure, WorkerError):
        return failure
    error = StageFailed(f"{type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error
