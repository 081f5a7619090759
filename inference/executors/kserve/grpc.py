"""A connection over gRPC, with NVIDIA's client."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from grpc.aio import AioRpcError
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from millstream.inference.errors import ExecutorUnavailable, InferenceError
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.kserve.answers import MOST_BYTES, arrays_of, reading
from millstream.inference.executors.kserve.endpoint import Answer, ModelMetadata, TensorMetadata
from millstream.inference.executors.kserve.statuses import of_grpc

# gRPC waits longer and longer between two attempts to connect, up to 2 minutes by default. Millstream itself decides when it
# tries again, and then wants an attempt.
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", MOST_BYTES),
]


class GrpcEndpoint:
    """See `Endpoint`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Args:
        url: `grpc://` or `grpcs://`, host and port.
        headers: sent with each request.
        """
        self.url = url
        self._headers = {name.lower(): value for name, value in headers.items()} or None
        self._made: InferenceServerClient | None = None  # created on the event loop, which its channel belongs to
        self._requested: dict[str, Any] = {}  # output -> its part of a request

    @property
    def _client(self) -> Any:
        if self._made is None:
            scheme, _, address = self.url.partition("://")
            self._made = InferenceServerClient(address, ssl=scheme == "grpcs", channel_args=OPTIONS)
        return self._made

    async def is_ready(self, model: str, version: str, timeout: float) -> bool:
        """See `Endpoint.is_ready`."""
        try:
            answer: bool = await self._client.is_model_ready(
                model, version, headers=self._headers, client_timeout=timeout
            )
        except InferenceServerException as error:
            if _code(error) in {"NOT_FOUND", "INVALID_ARGUMENT"}:
                return False
            raise ExecutorUnavailable(self._said(error)) from None
        return answer

    async def metadata(self, model: str, version: str, timeout: float) -> ModelMetadata:
        """See `Endpoint.metadata`."""
        options: dict[str, Any] = {"headers": self._headers, "client_timeout": timeout}
        try:
            found = await self._client.get_model_metadata(model, version, **options)
        except InferenceServerException as error:
            raise self._error(error) from None
        try:
            config = await self._client.get_model_config(model, version, **options)
            most = int(config.config.max_batch_size)
        except InferenceServerException as error:
            if _code(error) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}:
                raise self._error(error) from None
            most = None  # an extension of Triton, which other servers don't have
        return ModelMetadata(_tensors(found.inputs), _tensors(found.outputs), most)

    async def infer(
        self, model: str, version: str, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str], timeout: float
    ) -> Answer:
        """See `Endpoint.infer`."""
        try:
            result = await self._client.infer(
                model,
                [_input(name, array) for name, array in inputs.items()],
                version,
                outputs=[self._output(name) for name in outputs],
                headers=self._headers,
                client_timeout=timeout,
            )
        except InferenceServerException as error:
            raise self._error(error) from None
        except AioRpcError as error:
            raise ExecutorUnavailable(f"{self.url}: {line_of(error)}") from None
        response = result.get_response()
        with reading(self.url):
            arrays = arrays_of(result, {output.name: output.datatype for output in response.outputs})
        return Answer(response.model_name, response.model_version, arrays)

    async def close(self) -> None:
        """See `Endpoint.close`."""
        if self._made is not None:
            await self._made.close()

    def _output(self, name: str) -> Any:
        if name not in self._requested:
            self._requested[name] = InferRequestedOutput(name)
        return self._requested[name]

    def _error(self, error: InferenceServerException) -> InferenceError:
        return of_grpc(_code(error), self._said(error))

    def _said(self, error: InferenceServerException) -> str:
        return f"{self.url}: {_code(error)}: {line_of(Exception(error.message() or 'no reason given'))}"


def _code(error: InferenceServerException) -> str:
    return str(error.status() or "UNKNOWN").removeprefix("StatusCode.")


def _input(name: str, array: npt.NDArray[Any]) -> InferInput:
    tensor = InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(np.ascontiguousarray(array))
    return tensor


def _tensors(found: Any) -> list[TensorMetadata]:
    return [TensorMetadata(each.name, each.datatype, tuple(map(int, each.shape))) for each in found]
