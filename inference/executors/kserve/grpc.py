"""A connection over gRPC, with the protocol's messages of NVIDIA's client.

The client's own `infer` builds each request anew from Python objects, which takes a fifth of the CPU time of a small request.
So this connection sends bytes that `requests.py` makes. `responses.py` reads the bytes that come back.
"""

from collections.abc import Awaitable, Mapping, Sequence
from functools import cached_property
from typing import Any

import grpc
import numpy.typing as npt
from google.protobuf.message import DecodeError
from grpc.aio import AioRpcError
from tritonclient.grpc.service_pb2 import ModelConfigRequest, ModelMetadataRequest, ModelReadyRequest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from millstream.inference.errors import ExecutorUnavailable, InferenceError
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.kserve.answers import MALFORMED, MOST_BYTES, malformed
from millstream.inference.executors.kserve.endpoint import Answer, ModelMetadata, TensorMetadata
from millstream.inference.executors.kserve.requests import Requests, raw_items
from millstream.inference.executors.kserve.responses import Responses
from millstream.inference.executors.kserve.statuses import of_grpc

# gRPC waits longer and longer between two attempts to connect, up to 2 minutes by default. Millstream itself decides when it
# tries again, and then wants an attempt. It also decides which requests are sent again, and gRPC's own retries take a tenth of
# the CPU time of a request, even if none is.
OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", MOST_BYTES),
]
_INFER = "/inference.GRPCInferenceService/ModelInfer"


class GrpcEndpoint:
    """See `Endpoint`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Args:
        url: `grpc://` or `grpcs://`, host and port.
        headers: sent with each request.
        """
        self.url = url
        self._metadata = tuple((name.lower(), value) for name, value in headers.items()) or None
        self._channel: grpc.aio.Channel | None = None  # created on the event loop, which it belongs to
        self._requests = Requests()
        self._responses = Responses()

    @cached_property
    def _open(self) -> grpc.aio.Channel:
        scheme, _, address = self.url.partition("://")
        if scheme == "grpcs":
            self._channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(), OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(address, OPTIONS)
        return self._channel

    @cached_property
    def _stub(self) -> Any:
        return GRPCInferenceServiceStub(self._open)

    @cached_property
    def _send(self) -> Any:
        """Sends the bytes of an inference request, and returns those of the response."""
        return self._open.unary_unary(_INFER)

    async def is_ready(self, model: str, version: str, timeout: float) -> bool:
        """See `Endpoint.is_ready`."""
        request = ModelReadyRequest(name=model, version=version)
        try:
            answer = await self._stub.ModelReady(request, timeout=timeout, metadata=self._metadata)
        except AioRpcError as error:
            if error.code().name in {"NOT_FOUND", "INVALID_ARGUMENT"}:
                return False
            raise ExecutorUnavailable(self._said(error)) from None
        return bool(answer.ready)

    async def metadata(self, model: str, version: str, timeout: float) -> ModelMetadata:
        """See `Endpoint.metadata`."""
        options: dict[str, Any] = {"timeout": timeout, "metadata": self._metadata}
        try:
            found = await self._stub.ModelMetadata(ModelMetadataRequest(name=model, version=version), **options)
        except AioRpcError as error:
            raise self._error(error) from None
        try:
            config = await self._stub.ModelConfig(ModelConfigRequest(name=model, version=version), **options)
            most = int(config.config.max_batch_size)
        except AioRpcError as error:
            if error.code().name in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}:
                raise self._error(error) from None
            most = None  # an extension of Triton, which other servers don't have
        return ModelMetadata(_tensors(found.inputs), _tensors(found.outputs), most)

    async def infer(
        self, model: str, version: str, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str], timeout: float
    ) -> Answer:
        """See `Endpoint.infer`."""
        items = [raw_items(array) for array in inputs.values()]
        try:
            response = await self._ask(model, version, inputs, items, outputs, timeout)
        except AioRpcError as error:
            raise self._error(error) from None
        try:
            return self._responses.read(response)
        except (*MALFORMED, DecodeError) as error:
            raise malformed(self.url, error) from None

    async def prepare(self) -> None:
        """See `Endpoint.prepare`."""

    def _ask(
        self,
        model: str,
        version: str,
        inputs: Mapping[str, npt.NDArray[Any]],
        items: Sequence[Any],
        outputs: Sequence[str],
        timeout: float,
    ) -> Awaitable[Any]:
        """The bytes of the response. Arguments as for `Requests.of`. Raises AioRpcError."""
        request = self._requests.of(model, version, inputs, items, outputs)
        return self._send(request, timeout=timeout, metadata=self._metadata)  # type: ignore[no-any-return]

    async def close(self) -> None:
        """See `Endpoint.close`."""
        if self._channel is not None:
            await self._channel.close()

    def _error(self, error: AioRpcError) -> InferenceError:
        return of_grpc(error.code().name, self._said(error))

    def _said(self, error: AioRpcError) -> str:
        return f"{self.url}: {error.code().name}: {line_of(Exception(error.details() or 'no reason given'))}"


def _tensors(found: Any) -> list[TensorMetadata]:
    return [TensorMetadata(each.name, each.datatype, tuple(map(int, each.shape))) for each in found]
