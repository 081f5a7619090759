"""A connection over HTTP, with NVIDIA's client: binary tensors, or JSON for servers that don't take them."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.http.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from millstream.inference.errors import ExecutorUnavailable, InferenceError, TimedOut
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.kserve.answers import MALFORMED, MOST_BYTES, arrays_of, malformed, reading
from millstream.inference.executors.kserve.endpoint import Answer, ModelMetadata, TensorMetadata
from millstream.inference.executors.kserve.statuses import of_http
from millstream.inference.executors.retry_after import retry_after

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 1024
BINARY_EXTENSION = "binary_tensor_data"
TIMEOUT_EXTENSION = "schedule_policy"  # Triton's: requests may have the parameter `timeout`
# Answers to binary tensors by servers that only take JSON. Nothing in the protocol says which one it is.
_BINARY_REFUSED = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,  # MLServer
    HTTPStatus.INTERNAL_SERVER_ERROR,
}


class _StatusError(Exception):
    """The server answered with a status other than success."""

    def __init__(self, status: int, said: str, retry_after: float | None) -> None:
        super().__init__(said)
        self.status = status
        self.retry_after = retry_after

    def meaning(self) -> InferenceError:
        """What it means for the micro-batch."""
        return of_http(self.status, str(self), self.retry_after)


class _Response(aiohttp.ClientResponse):
    """Bounds the memory that a response takes."""

    async def read(self) -> bytes:
        """The body. Raises ClientPayloadError: it is too large, compressed or cut off."""
        try:
            # The client would decompress it without a limit.
            if (encoding := self.headers.get("Content-Encoding", "identity")) != "identity":
                raise aiohttp.ClientPayloadError(f"expected an answer that is not compressed, found {encoding}")
            chunks: list[bytes] = []
            left = MOST_BYTES
            async for chunk in self.content.iter_any():
                left -= len(chunk)
                if left < 0:
                    raise aiohttp.ClientPayloadError(f"answers with more than {MOST_BYTES:,} bytes")
                chunks.append(chunk)
        except BaseException:
            self.close()  # the rest is not read, so the connection can't take another request
            raise
        return b"".join(chunks)


class _Client(InferenceServerClient):  # type: ignore[misc]
    """Also remembers the header `Retry-After`, which the client's errors don't have. It follows no redirects."""

    retry_after: float | None = None
    _stub: Any

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, **options)
        self._stub.detach()  # its session has no place for the class of responses
        self._stub = aiohttp.ClientSession(
            connector=self._conn,
            timeout=aiohttp.ClientTimeout(total=None),  # each call has a time limit of its own
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            response_class=_Response,
        )

    async def _get(self, request_uri: str, headers: Mapping[str, str], query_params: None) -> Any:  # noqa: ARG002
        return await self._request("GET", request_uri, headers)

    async def _post(
        self,
        request_uri: str,
        request_body: bytes | str,
        headers: Mapping[str, str],
        query_params: None,  # noqa: ARG002
    ) -> Any:
        response = await self._request("POST", request_uri, headers, request_body)
        if response.status in {429, 503}:
            self.retry_after = retry_after(response.headers)
        return response

    async def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | str | None = None
    ) -> aiohttp.ClientResponse:
        self._validate_headers(headers)
        data = body.encode() if isinstance(body, str) else body
        response: aiohttp.ClientResponse = await self._stub.request(
            method,
            f"{self._url}/{path}",
            data=data,
            headers=self._fix_header(headers),
            allow_redirects=False,  # the headers and the events must not go elsewhere
        )
        return response


class HttpEndpoint:
    """See `Endpoint`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Args:
        url: `http://` or `https://`, host and port.
        headers: sent with each request.
        """
        self.url = url
        self._headers = dict(headers)
        self._made: _Client | None = None  # created on the event loop, which its session belongs to
        self._binary: bool | None = None  # whether the server takes binary tensors; None: not known yet
        self._takes_timeout = False  # whether the server takes the parameter `timeout`

    async def is_ready(self, model: str, version: str, timeout: float) -> bool:
        """See `Endpoint.is_ready`."""
        answer: bool = await self._call(self._client.is_model_ready(model, version, headers=self._headers), timeout)
        return answer

    async def metadata(self, model: str, version: str, timeout: float) -> ModelMetadata:
        """See `Endpoint.metadata`."""
        try:
            found = await self._call(self._client.get_model_metadata(model, version, headers=self._headers), timeout)
        except _StatusError as error:
            raise error.meaning() from None
        try:
            config = await self._call(self._client.get_model_config(model, version, headers=self._headers), timeout)
            with reading(self.url):
                most = int(config.get("max_batch_size", 0))
        except _StatusError as error:
            if error.status >= 500 and error.status != HTTPStatus.NOT_IMPLEMENTED:
                raise error.meaning() from None
            most = None  # an extension of Triton, which other servers don't have
        await self._read_extensions(timeout)
        with reading(self.url):
            return ModelMetadata(_tensors(found.get("inputs")), _tensors(found.get("outputs")), most)

    async def infer(
        self, model: str, version: str, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str], timeout: float
    ) -> Answer:
        """See `Endpoint.infer`."""
        binary = self._binary is not False  # of this request: another one may find out meanwhile
        try:
            result = await self._infer(model, version, inputs, outputs, timeout, binary=binary)
            if self._binary is None:
                self._binary = True
        except _StatusError as error:
            if not binary or not self._may_want_json(error.status):
                raise error.meaning() from None
            result = await self._again_as_json(error, model, version, inputs, outputs, timeout)
        with reading(self.url):
            response = result.get_response()
            arrays = arrays_of(result, {output["name"]: output["datatype"] for output in response["outputs"]})
            return Answer(response.get("model_name") or model, str(response.get("model_version") or ""), arrays)

    async def prepare(self) -> None:
        """See `Endpoint.prepare`."""

    async def close(self) -> None:
        """See `Endpoint.close`."""
        if self._made is not None:
            await self._made.close()

    @property
    def _client(self) -> _Client:
        if self._made is None:
            scheme, _, address = self.url.partition("://")
            self._made = _Client(address, ssl=scheme == "https", conn_limit=MOST_CONNECTIONS)
        return self._made

    async def _read_extensions(self, timeout: float) -> None:
        """Find out whether the server takes binary tensors and time limits, if it lists its extensions."""
        try:
            found = await self._call(self._client.get_server_metadata(headers=self._headers), timeout)
        except (_StatusError, ExecutorUnavailable):  # a gateway may serve only the models' paths
            return
        extensions = found.get("extensions") if isinstance(found, dict) else None
        if isinstance(extensions, list):
            self._takes_timeout = TIMEOUT_EXTENSION in extensions
            if BINARY_EXTENSION not in extensions:
                self._use_json()

    def _may_want_json(self, status: int) -> bool:
        """Whether a server that refused binary tensors may take JSON."""
        # Later, a status such as 400 is about the events. MLServer may still take the place of another server: its 422 is not.
        return status == HTTPStatus.UNPROCESSABLE_ENTITY or (self._binary is None and status in _BINARY_REFUSED)

    def _use_json(self) -> None:
        if self._binary is not False:  # of the requests in flight, the first one says it
            log.info("%s takes no binary tensors, so they are sent as JSON. gRPC would be faster", self.url)
            self._binary = False

    async def _again_as_json(
        self,
        refused: _StatusError,
        model: str,
        version: str,
        inputs: Mapping[str, npt.NDArray[Any]],
        outputs: Sequence[str],
        timeout: float,
    ) -> Any:
        """The client's result for the same tensors as JSON. All servers take JSON, so this answer counts, also an error."""
        try:
            result = await self._infer(model, version, inputs, outputs, timeout, binary=False)
        except _StatusError as error:
            said = f"{error} (sent as JSON, after binary tensors were sent and refused with HTTP {refused.status})"
            raise of_http(error.status, said, error.retry_after) from None
        self._use_json()
        return result

    async def _infer(
        self,
        model: str,
        version: str,
        inputs: Mapping[str, npt.NDArray[Any]],
        outputs: Sequence[str],
        timeout: float,
        *,
        binary: bool,
    ) -> Any:
        tensors = [_input(name, array, binary=binary) for name, array in inputs.items()]
        wanted = [InferRequestedOutput(name, binary_data=binary) for name in outputs]
        # A copy, because the client adds to the headers that it is given.
        headers = {**self._headers} if binary else {**self._headers, "Content-Type": "application/json"}
        limit = max(int(timeout * 1e6), 1) if self._takes_timeout else None  # us
        call = self._client.infer(model, tensors, version, wanted, headers=headers, timeout=limit)
        return await self._call(call, timeout)

    async def _call(self, call: Awaitable[Any], timeout: float) -> Any:
        """What the call returns. Raises ExecutorUnavailable if the server doesn't answer, and _StatusError."""
        try:
            async with asyncio.timeout(timeout):
                return await call
        except TimeoutError:
            raise TimedOut(f"{self.url}: no answer within {timeout:.3g} s") from None
        except InferenceServerException as error:
            # The details are the whole answer, if it is no error in the protocol's form.
            said = line_of(Exception(error.debug_details() or error.message() or "no reason given"))
            if error.status() is None:  # the client itself can't read the answer
                raise ExecutorUnavailable(f"{self.url}: {said}") from None
            status, self._client.retry_after, after = int(error.status()), None, self._client.retry_after
            raise _StatusError(status, f"{self.url}: HTTP {status}: {said}", after) from None
        except aiohttp.ClientConnectorError as error:
            raise ExecutorUnavailable(f"{self.url}: can't connect: {_reason(error.os_error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ExecutorUnavailable(f"{self.url}: {line_of(error) or type(error).__name__}") from None
        except MALFORMED as error:
            raise malformed(self.url, error) from None


def _reason(error: OSError) -> str:
    """Why a connection failed, without the client's words: they speak of SSL for `http://`, too."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or line_of(error) or type(error).__name__


def _input(name: str, array: npt.NDArray[Any], *, binary: bool) -> InferInput:
    tensor = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(np.ascontiguousarray(array), binary_data=binary)
    return tensor


def _tensors(found: Any) -> list[TensorMetadata]:
    return [TensorMetadata(each["name"], each["datatype"], tuple(map(int, each["shape"]))) for each in found or ()]
