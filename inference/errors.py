"""What can go wrong with a model and what runs it."""

from typing import ClassVar

from millstream.schemas.failures import Failure


class InferenceError(Exception):
    """Base of this package's errors."""

    failure: ClassVar[Failure] = "stop"  # see `schemas.failures`


class ModelConfigError(InferenceError):
    """The model, its config.yaml or its mapping to the event's fields is wrong.

    Raised by `repository` and `signature` before the worker starts. The message names file, field and tensor; the caller prints
    it and ends.
    """


class DeviceError(InferenceError):
    """The device that the pipeline asks for is not there. Raised by an executor's construction; the caller prints it and ends."""


class ModelRejected(InferenceError):  # noqa: N818  (says what is wrong with a micro-batch, not a fault of ours)
    """The model refused a micro-batch. Raised by `Executor.run`; the caller bisects until the bad events stand alone."""

    failure = "reject"


class OutOfMemory(InferenceError):  # noqa: N818
    """The micro-batch did not fit the device's memory. Raised by `Executor.run`; the caller splits it and runs the halves."""

    failure = "reject"


class ExecutorUnavailable(InferenceError):  # noqa: N818
    """The executor itself failed, whatever the events. Raised by `Executor.run`; the caller retries with back-off."""

    failure: ClassVar[Failure] = "wait"


class ExecutorLost(ExecutorUnavailable):
    """The executor failed and can't come back in this process (CUDA's context is spoilt). Raised by `Executor.run`.

    The caller ends the worker; its successor begins with a fresh one.
    """

    failure = "stop"
