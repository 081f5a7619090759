"""The executor kserve: runs a model on servers that speak the Open Inference Protocol (KServe v2)."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.batch_sizes import bucket_of
from millstream.inference.errors import (
    ExecutorUnavailable,
    InferenceError,
    ModelConfigError,
    ModelRejected,
    NotSent,
    OutOfMemory,
)
from millstream.inference.executors.endpoints import Endpoints
from millstream.inference.executors.interface import (
    AsyncExecutor,
    Inputs,
    Tensors,
    check_rows,
)
from millstream.inference.executors.kserve.endpoint import Answer, Endpoint
from millstream.inference.executors.kserve.metadata import check_metadata
from millstream.inference.executors.kserve.options import KServeOptions
from millstream.inference.executors.kserve.output_checks import OutputChecks
from millstream.inference.outputs import named
from millstream.inference.repository import ModelVersion
from millstream.inference.server_section import ServerSection
from millstream.inference.signature import blank
from millstream.inference.varying import length_buckets_of, lengths_in, padded_to

log = logging.getLogger(__name__)

EXTRA = "pip install 'millstream[kserve]'"


class KServeExecutor(AsyncExecutor):
    """Runs a model on one or several servers. Each request names the model and its version."""

    def __init__(self, model: ModelVersion, *, max_events: int = 256) -> None:
        """Read the options. It connects in `warm_up`.

        Args:
            model: its config.yaml names the servers.
            max_events: the largest micro-batch.

        Raises:
            ModelConfigError: the options are wrong, or the extra is not installed.
        """
        assert model.server is not None
        options = model.server.read(KServeOptions)
        self.model = model
        self._named = model.place  # in messages
        self.limits = options.limits
        self.max_events = max_events
        self.batch_sizes = model.batch_sizes or (1,)
        self._name = options.model or model.name
        self._version = _version(options.version, model, model.server)
        self._outputs = model.signature.output_tensors
        longest = model.signature.max_length
        # Lengths that inputs of variable length are padded to; empty: there are none.
        self._lengths = length_buckets_of(model.length_buckets, longest) if longest else ()
        self._checks = OutputChecks(self._outputs, lengths_vary=bool(self._lengths))
        self._timeout = options.timeout
        headers = options.secret_headers()
        shared = options.shared_memory
        self._all = [_endpoint(url, headers, model.server, shared_memory=shared) for url in options.urls]
        self._endpoints = Endpoints(self._all, self._check)

    async def warm_up(self) -> None:
        """See `AsyncExecutor.warm_up`. At least one server must have the model; the others may come later."""
        await self._endpoints.start()

    async def run(self, inputs: Inputs, timeout: float) -> dict[str, npt.NDArray[Any]]:
        """See `AsyncExecutor.run`."""
        inputs = self._padded(inputs)

        async def send(endpoint: Endpoint, left: float) -> Answer:
            answer = await endpoint.infer(self._name, self._version, inputs, self._outputs, left)
            self._check_answer(answer, endpoint)
            return answer

        try:
            answer = await self._endpoints.call(send, timeout, self._timeout)
        except InferenceError as error:
            error.args = (f"{self._named}: {error}",)
            raise
        except UnicodeEncodeError:
            raise NotSent(f"{self._named}: expected Unicode text, found half of a surrogate pair in it") from None
        tensors = {name: self._decoded(name, answer.outputs[name]) for name in self._outputs}
        return named(self.model.signature.outputs, tensors, self._named)

    def _padded(self, inputs: Inputs) -> Tensors:
        """The events padded to the length of the longest one, rounded up to a bucket: a request has one length."""
        if not self._lengths:
            return inputs
        length = bucket_of(int(lengths_in(inputs).max()), self._lengths)
        return padded_to(self.model.signature.inputs, inputs, length)

    async def close(self) -> None:
        """See `AsyncExecutor.close`."""
        await self._endpoints.stop()
        await asyncio.gather(*(endpoint.close() for endpoint in self._all), return_exceptions=True)

    async def _check(self, endpoint: Endpoint) -> None:
        """Check that a server has the model, and that it fits config.yaml; and warm it up."""
        timeout = self._timeout
        if not await endpoint.is_ready(self._name, self._version, timeout):
            raise ExecutorUnavailable(
                f"{self._named}: expected {self._place(endpoint)}, but the server doesn't have it, or hasn't loaded it yet"
                f"{await self._hint(endpoint)}"
            )
        metadata = await endpoint.metadata(self._name, self._version, timeout)
        check_metadata(self.model, metadata, self._place(endpoint))
        self._checks.note_metadata(metadata.outputs)
        most = metadata.max_batch_size or self.max_events
        if 0 < most < self.max_events:
            log.info(
                "%s takes at most %d events a request, so larger micro-batches become several requests at the same time",
                self._place(endpoint),
                most,
            )
            self.max_events = most
        await endpoint.prepare()
        await self._warm_up()

    async def _warm_up(self) -> None:
        """Run blank events once for each batch size."""
        for size in sorted({min(size, self.max_events) for size in self.batch_sizes}):
            try:
                outputs = await self.run(
                    blank(self.model.signature.inputs, size), self._timeout
                )  # of the greatest length
                check_rows(outputs, size, self._named)
            except ModelRejected as error:
                events = "1 blank event" if size == 1 else f"{size} blank events"
                log.warning("not warmed up: the server refused %s: %s", events, error)
            except OutOfMemory as error:
                if size == 1:
                    raise ExecutorUnavailable(str(error)) from error
                log.warning(
                    "%d events at once do not fit the server's memory, so batches will run in parts: %s", size, error
                )
                break

    async def _hint(self, endpoint: Endpoint) -> str:
        """Advice for a server that has the model, but not its version."""
        if not self._version or not await endpoint.is_ready(self._name, "", self._timeout):
            return ""
        return (
            f". It has model {self._name} without this version. If the server's models have no versions, write `version: ''` "
            f"under `server` in config.yaml"
        )

    def _check_answer(self, answer: Answer, endpoint: Endpoint) -> None:
        """Check that the wanted model answered. Another one is an outage, for its predictions would be under a wrong version.

        Raises:
            ExecutorUnavailable: another model answered, or one with other outputs than at the start.
            ModelConfigError: the answer lacks an output.
        """
        if answer.model != self._name or (self._version and answer.version != self._version):
            raise ExecutorUnavailable(
                f"expected an answer of {self._place(endpoint)}, found one of model {answer.model} version {answer.version}"
            )
        outputs = answer.outputs
        for name in self._outputs:
            if name not in outputs:
                raise ModelConfigError(
                    f"{self._named}: the server answered the outputs {sorted(outputs)}, without {name}, which config.yaml names."
                )
            self._checks.check(name, outputs[name], lambda: self._place(endpoint))

    def _place(self, endpoint: Endpoint) -> str:
        version = f" version {self._version}" if self._version else ""
        return f"model {self._name}{version} on {endpoint.url}"

    def _decoded(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if array.dtype.kind not in "OS":
            return array
        try:
            texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.reshape(-1).tolist()]
        except UnicodeDecodeError:
            raise ModelRejected(f"{self._named}: output `{name}` holds bytes that are no text in UTF-8.") from None
        return np.array(texts, object).reshape(array.shape)


def _version(given: str | None, model: ModelVersion, server: ServerSection) -> str:
    """The version on the server. It is the number of the folder, which predictions have; or the server has no versions."""
    own = str(model.version)
    if given in {None, own}:
        return own
    if given == "":
        return ""
    raise ModelConfigError(
        f"{server.at('version')}: expected '{own}', the number of the version's folder, because predictions have this number; "
        f"found {given!r}. Rename the folder, or write '' for a server whose models have no versions, such as MLServer."
    )


def _endpoint(url: str, headers: Mapping[str, str], server: ServerSection, *, shared_memory: bool) -> Endpoint:
    """A connection. Its client is imported only here, because it takes a while. Raises ModelConfigError if it isn't installed."""
    try:
        if shared_memory:
            from millstream.inference.executors.kserve.shared_memory import SharedMemoryEndpoint  # noqa: PLC0415

            return SharedMemoryEndpoint(url, headers, server.at("shared_memory"))
        if url.startswith("grpc"):
            from millstream.inference.executors.kserve.grpc import GrpcEndpoint  # noqa: PLC0415

            return GrpcEndpoint(url, headers)
        from millstream.inference.executors.kserve.http import HttpEndpoint  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:  # the client turns its own ImportErrors into RuntimeErrors
        raise ModelConfigError(
            f"{server.at()}: the executor kserve needs a client of model servers, which is not installed ({error}). Install it: "
            f"{EXTRA}"
        ) from None
    return HttpEndpoint(url, headers)
