"""The interface of a connection to one server: gRPC or HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """A tensor, as the server describes it."""

    name: str
    datatype: str  # the protocol's name, such as FP32
    shape: tuple[int, ...]  # -1: any size


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model, as the server describes it."""

    inputs: Sequence[TensorMetadata]  # empty: the server doesn't say
    outputs: Sequence[TensorMetadata]  # the same
    max_batch_size: (
        int | None
    )  # None: the server doesn't say; 0: the model takes single events only, or has a fixed shape


class Answer(NamedTuple):
    """What a server answered to an inference request."""

    model: str
    version: str  # empty: the server doesn't say
    outputs: Mapping[str, npt.NDArray[Any]]


class Endpoint(Protocol):
    """A connection to one server. Coroutines on one event loop call it. Secrets in its headers are never in a message."""

    url: str

    async def is_ready(self, model: str, version: str, timeout: float) -> bool:
        """Whether the server has this model loaded. Raises ExecutorUnavailable if it doesn't answer."""
        ...

    async def metadata(self, model: str, version: str, timeout: float) -> ModelMetadata:
        """Describe a model. Raises InferenceError."""
        ...

    async def infer(
        self, model: str, version: str, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str], timeout: float
    ) -> Answer:
        """Run a micro-batch.

        Args:
            model: the server's name of the model.
            version: the server's; empty: the server chooses.
            inputs: tensor -> [events, ...].
            outputs: the wanted tensors.
            timeout: seconds for the whole request.

        Raises:
            InferenceError: see `AsyncExecutor.run`.
        """
        ...

    async def prepare(self) -> None:
        """Prepare for requests, before the warm-up of a server that is ready.

        Raises:
            ExecutorUnavailable: the server is away.
            ModelConfigError: it can't do what the options want.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
