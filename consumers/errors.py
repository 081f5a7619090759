"""The errors of a worker."""

from typing import ClassVar

from millstream.schemas.failures import Failure

NEEDS_CHANGE = 3
"""Exit code of a worker that would end the same way after a restart: somebody has to change something first."""


class WorkerError(Exception):
    """Base of this package's errors. The message says what to do. The command line prints it and exits with 1."""

    failure: ClassVar[Failure] = "stop"  # see `schemas.failures`


class PlanError(WorkerError):
    """The parts of the pipeline don't fit each other. Raised by `plan` before the worker starts; the caller ends."""


class DeliveryFailed(WorkerError):  # noqa: N818
    """An output record could not be written, and a retry would not help.

    Raised by `sink`. Its offset was not committed. The worker ends, and the next one reads the event again.
    """


class TransactionAborted(WorkerError):  # noqa: N818
    """The transaction is aborted, or must be. Raised by `transactions`; the writer aborts, and the loop goes back."""


class PartitionsMoved(TransactionAborted):
    """Partitions went to another worker before the commit, as they do when workers join and leave: nothing is wrong."""


class InstanceIdTaken(WorkerError):  # noqa: N818
    """Another worker has this instance ID. Raised by `instance_id` at the start, and by `transactions` if that one came later.

    The worker ends.
    """


class Abandoned(WorkerError):  # noqa: N818
    """The worker must not wait any longer: its drain time is over. Raised in the stages; it ends them without a commit."""


class OutageLasts(WorkerError):  # noqa: N818
    """A server does not answer for longer than a command waits. Raised by `LimitedRetry`; the caller prints it and ends."""


class WorkersFailed(WorkerError):  # noqa: N818
    """No worker gets ready. Raised by `supervisor` with the log of one worker; the caller ends."""


class WorkersStopped(WorkerError):  # noqa: N818
    """Each worker ended with `NEEDS_CHANGE`. Raised by `supervisor` with the message of the last one; the caller ends."""


class StageFailed(WorkerError):  # noqa: N818
    """An unexpected error ended a stage. Raised by `worker` with that error as its cause."""


class MemoryShort(WorkerError):  # noqa: N818
    """Memory is too short for the worker to go on. Raised by `worker`; the next one reads what is not committed again."""

    def __init__(self, doing: str, error: BaseException) -> None:
        """Args:
        doing: what the worker did, as in "the worker read records".
        error: that memory is short. It is not kept: its traceback would keep what the worker has just read.
        """
        super().__init__(f"memory {ran_short(f'the worker {doing}', error, is_worker=True)}")


class EventRefused(WorkerError):  # noqa: N818
    """An event was rejected for a reason at which the pipeline stops (`on_error.stop`).

    Raised by `sink`, once all events before it are written; the writer commits these. The worker ends with `NEEDS_CHANGE`,
    because its successor would come to the same event.
    """

    ends: dict[tuple[str, int], tuple[int, int]]  # the next offsets of the events before it, see `events.NextOffsets`
    batches: int = 0  # so many results of the sink's call are written; of the last one, only the events before this one

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
    """The client delivered records twice. Raised by `offset_order`; the loop goes back to the committed offsets."""


class ClusterChanged(WorkerError):  # noqa: N818
    """The cluster lost data while the worker ran. Raised by `worker`; the next one reads what is there now."""


class OffsetsPastEnd(WorkerError):  # noqa: N818
    """The group's committed offsets are past the ends of their partitions. Raised by `past_end`.

    The worker ends with `NEEDS_CHANGE`: a restart finds the same offsets, and would pass by new events up to there.
    """


class OffsetsForgotten(WorkerError):  # noqa: N818
    """With exactly once, the broker gives an older committed offset than it has confirmed. Raised by `forgotten_offsets`.

    The worker ends with `NEEDS_CHANGE`: its successor would take the older offset for right, and answer events twice.
    """


class ReadBelowCommitted(WorkerError):  # noqa: N818
    """The client started below the committed offset. Raised by `offset_order`; the worker ends, and the next one goes on."""


def ran_short(what: str, error: BaseException, *, is_worker: bool) -> str:
    """Says that memory ran short, behind the word "memory".

    Args:
        what: what went on, as in "the worker read records".
        error: that memory is short.
        is_worker: whether a worker ends by it, or `millstream run`: the next one goes on with what it has read.
    """
    kept = " Nothing is lost: the events since the last commit are read again." if is_worker else ""
    fewer = "" if is_worker else " Or give a command that reads events fewer of them at a time."
    return (
        f"ran short while {what} ({str(error) or type(error).__name__}), so it ends.{kept} Give it more memory (`ulimit -v`, or "
        f"the limit of its container). Or lower `batch.max_events` and `limits.in_flight_bytes` in the pipeline file: the latter "
        f"also bounds what a worker fetches ahead.{fewer}"
    )


def as_worker_error(failure: BaseException) -> WorkerError:
    """The error as a WorkerError. An error of another class becomes the cause of a `StageFailed`, unless memory is short."""
    if isinstance(failure, WorkerError):
        return failure
    if isinstance(failure, MemoryError):
        return MemoryShort("ran the model", failure)  # what else it does, the worker's own threads tell
    error = StageFailed(f"{type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error
