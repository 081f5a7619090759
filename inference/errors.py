"""The errors of models and executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from millstream.schemas.failures import Failure

if TYPE_CHECKING:  # commands that run no model import this module, too
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt


class InferenceError(Exception):
    """Base of this package's errors."""

    failure: ClassVar[Failure] = "stop"  # see `schemas.failures`


class ModelConfigError(InferenceError):
    """The model, its config.yaml or its mapping to the event's fields is wrong.

    Raised by `repository` and `signature` before the worker starts. The message names file, field and tensor; the caller prints
    it and ends.
    """


class OutputsDiffer(ModelConfigError):  # noqa: N818
    """The outputs of parts of a micro-batch differ in shape or type, so that they can't be joined."""


class SourceUnavailable(InferenceError):  # noqa: N818
    """The place that models come from is away or too slow, or what it holds can't be stored here at present.

    Raised by `sources`. A worker that starts waits and tries again; one that serves a model goes on with it.
    """

    failure: ClassVar[Failure] = "wait"


class DeviceError(InferenceError):
    """The requested device doesn't exist. Raised when an executor is created; the caller prints it and ends."""


class ModelRejected(InferenceError):  # noqa: N818  (it describes a micro-batch, not an error of Millstream)
    """The model rejected a micro-batch. Raised by `Executor.run`; the caller bisects it until the bad events are alone."""

    failure = "reject"


class NotSent(ModelRejected):
    """The executor itself rejected a micro-batch, and asked no server: this says nothing about the server.

    Raised by `AsyncExecutor.run`, and otherwise treated as ModelRejected.
    """


class NanOutput(ModelRejected):
    """The model answers NaN where the prediction has a class. Raised by `Executor.run`, and treated as ModelRejected."""


class CodeAtFault(ModelRejected):
    """The code of a Python model is at fault: it doesn't do as config.yaml says, or a name or a module isn't there.

    Raised by `Executor.run`, and treated as ModelRejected, for one event may be at fault. In the warm-up none is.
    """


class EventRejection(NamedTuple):
    """Why an event gets no prediction."""

    reason: str  # a code, see docs/dead-letters.md
    error: str  # a sentence for people


class EventsRejected(ModelRejected):
    """Some events of a micro-batch get no prediction, and the executor knows which. Raised by `Executor.run`.

    It has the outputs of the others, so the caller needn't bisect the micro-batch.
    """

    def __init__(
        self,
        outputs: dict[str, npt.NDArray[Any]],
        rows: npt.NDArray[np.int64],
        rejected: Mapping[int, EventRejection],
    ) -> None:
        """Args:
        outputs: name -> [len(rows), ...]; empty if there are no rows.
        rows: rows of the micro-batch that have outputs, ascending.
        rejected: for each other row, why it has none. At least one.
        """
        super().__init__(next(iter(rejected.values())).error)
        self.outputs = outputs
        self.rows = rows
        self.rejected = rejected


class OutOfMemory(InferenceError):  # noqa: N818
    """The micro-batch did not fit into the device's memory. Raised by `Executor.run`; the caller runs it in parts."""

    failure = "reject"


class ExecutorUnavailable(InferenceError):  # noqa: N818
    """The executor failed, independent of the events. Raised by `Executor.run`; the caller retries with back-off."""

    failure: ClassVar[Failure] = "wait"


class TimedOut(ExecutorUnavailable):
    """The server didn't answer within the time limit. Raised by `AsyncExecutor.run`.

    If events with a deadline had less time than a request may take, this says nothing about the server.
    """


class Throttled(ExecutorUnavailable):
    """The server has too much to do, or a quota is used up (HTTP 429 and 503). Raised by `AsyncExecutor.run`.

    The caller sends fewer requests at a time, and retries this one.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """Args:
        message: what the server said.
        retry_after: seconds after which the server wants the request again; None: it didn't say.
        """
        super().__init__(message)
        self.retry_after = retry_after


class ExecutorLost(ExecutorUnavailable):
    """The executor failed and can't recover in this process, because the CUDA context is lost. Raised by `Executor.run`.

    The caller ends the worker, and the next one starts with a new context.
    """

    failure = "stop"


class FeatureStoreError(InferenceError):
    """A feature store, or the look-up of features in it, is set up wrongly. Raised before the worker starts; the caller ends."""


class FeatureStoreUnavailable(InferenceError):  # noqa: N818
    """The feature store doesn't answer, or not in time. Raised by `Entities.read`; the caller retries with back-off."""

    failure: ClassVar[Failure] = "wait"


class NotOptimized(InferenceError):  # noqa: N818
    """A model can't be optimised, or its new version is of no use. Raised by `optimizing`; the caller prints it and ends."""
