"""The interface of what runs micro-batches: a pool of threads, or an event loop."""

from typing import Protocol

from millstream.consumers.events import MicroBatch
from millstream.consumers.execute.opened_rollout import Opened


class Pool(Protocol):
    """Runs micro-batches, and passes their results on in the order that `ordering` demands. One thread calls it."""

    @property
    def together(self) -> int:
        """How many full batches may be submitted as one. The model still runs them one after the other.

        It is more than 1 if the model takes so little time that the work around a batch counts. If several models share the
        events, each of them gets fuller batches then.
        """
        ...

    def submit(self, batch: MicroBatch) -> None:
        """Run a batch, or queue it once there is room.

        Results may be kept back: call `flush` when there are no more batches for now.

        Raises:
            Abandoned: the worker must not wait any longer.
        """

    def flush(self) -> None:
        """Pass on the results that were kept back."""

    def wait_for_one(self) -> bool:
        """Wait until another batch would run at once. Returns whether it had to wait. Raises Abandoned."""
        ...

    def settle(self) -> None:
        """Wait until the results of all batches are passed on. Raises Abandoned."""

    def switch_to(self, model: Opened) -> None:
        """Let another version, or rollout, which is warmed up, answer the batches that are submitted from now on.

        A batch that was submitted before is still answered by the version before. A thread other than that of `submit` calls it.
        """

    def is_in_use(self, model: Opened) -> bool:
        """Whether the version answers new batches, or has batches in flight. The thread of `switch_to` calls it."""
        ...

    def close(self) -> None:
        """End what runs. Waits up to 1 s, because a model may hang."""
