"""A connection over gRPC to a server on the same machine, which gets large tensors in shared memory."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from grpc.aio import AioRpcError
from tritonclient.grpc.service_pb2 import (
    ModelInferRequest,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryStatusRequest,
    SystemSharedMemoryUnregisterRequest,
)
from tritonclient.utils import np_to_triton_dtype

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.kserve.grpc import GrpcEndpoint
from millstream.inference.executors.kserve.regions import PREFIX, Region, exists, remove_left_over
from millstream.inference.executors.kserve.requests import bytes_in

log = logging.getLogger(__name__)

LEAST_BYTES = 1 << 15  # a smaller request takes no less time with shared memory (docs/executors.md)
MOST_REGIONS = 64  # requests in flight beyond these have their tensors in them
REST = 60.0  # seconds until a region is used again whose request was abandoned: the server may still read it
REGISTER_TIMEOUT = 10.0  # seconds; to unregister a region may take as long
LEAVE_TIMEOUT = 1.0  # seconds that a start or an end waits until the server has unregistered regions
# Seconds between tries to unregister a region that the server still uses. No request waits for them. A server lets go of a
# request's region only after it has sent the answer. Until then, Triton 2.50 to 2.52 refuse to unregister it. Later ones
# unregister it afterwards (https://github.com/triton-inference-server/server/pull/7743).
IN_USE_WAITS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0)
_NO_ANSWER = {"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"}
_AWAY = {"DEADLINE_EXCEEDED", "UNAVAILABLE"}


class SharedMemoryEndpoint(GrpcEndpoint):
    """See `Endpoint`. A request that can't have a region has its tensors in it."""

    def __init__(self, url: str, headers: Mapping[str, str], place: str) -> None:
        """Args:
        url: `grpc://` or `grpcs://`, host and port of this machine.
        headers: sent with each request.
        place: of the option, for messages.
        """
        super().__init__(url, headers)
        self._place = place
        self._free: list[Region] = []
        self._resting: deque[tuple[float, Region]] = deque()  # until when on the loop's clock, ascending
        self._count = 0  # all regions, with those in use
        self._leaving: dict[str, asyncio.Task[None]] = {}  # name of each region that the server may still have mapped
        self._size = LEAST_BYTES  # of a new region: bytes
        self._failed = False  # whether the log says that a region can't be made

    async def prepare(self) -> None:
        """Remove what killed processes left, here and on the server, and make the first region. See `Endpoint.prepare`."""
        remove_left_over()
        try:
            found = await self._stub.SystemSharedMemoryStatus(
                SystemSharedMemoryStatusRequest(), **self._within(REGISTER_TIMEOUT)
            )
            left_over = [name for name in found.regions if name.startswith(PREFIX) and not exists(name)]
            await self._wait_until_left([self._unregister_soon(name) for name in left_over])
            if not self._count:
                self._free.append(await self._made())
        except AioRpcError as error:
            if error.code().name in _AWAY:
                raise self._error(error) from None
            raise ModelConfigError(
                f"{self._place}: expected a server that can open this machine's shared memory, such as Triton; found one that "
                f"can't ({self._said(error)}). If it runs in a container, let it share /dev/shm and the user. Or leave out "
                f"the option."
            ) from None
        except OSError as error:
            raise ModelConfigError(
                f"{self._place}: expected {self._size:,} free bytes of shared memory, but they can't be had ({error}). Free some "
                f"of /dev/shm, or leave the option out."
            ) from None

    async def close(self) -> None:
        """See `Endpoint.close`."""
        for region in [*self._free, *(region for _, region in self._resting)]:
            self._drop(region)
        self._free.clear()
        self._resting.clear()
        left = list(self._leaving.values())
        await self._wait_until_left(left)
        for task in left:
            task.cancel()
        await super().close()

    async def _ask(
        self,
        model: str,
        version: str,
        inputs: Mapping[str, npt.NDArray[Any]],
        items: Sequence[Any],
        outputs: Sequence[str],
        timeout: float,
    ) -> Any:
        now = asyncio.get_running_loop().time
        began, needed = now(), sum(map(bytes_in, items))
        region = await self._take(needed) if needed >= LEAST_BYTES else None
        if region is None:
            return await super()._ask(model, version, inputs, items, outputs, timeout - (now() - began))
        try:
            region.write(items)
            request = _request(model, version, inputs, items, outputs, region.name)
            answer = await self._send(request, timeout=timeout - (now() - began), metadata=self._metadata)
        except AioRpcError as error:
            if error.code().name in _NO_ANSWER:
                self._resting.append((now() + REST, region))
                raise
            if "shared memory" not in (error.details() or "").lower():
                self._free.append(region)
                raise
            # The server was started anew, so it doesn't know the region. No event is to blame.
            self._drop(region)
            return await super()._ask(model, version, inputs, items, outputs, timeout - (now() - began))
        except BaseException:
            self._resting.append((now() + REST, region))
            raise
        self._free.append(region)
        return answer

    async def _take(self, needed: int) -> Region | None:
        """A region of at least so many bytes; None: there is none."""
        while self._resting and self._resting[0][0] <= asyncio.get_running_loop().time():
            self._free.append(self._resting.popleft()[1])
        self._size = max(self._size, 1 << (needed - 1).bit_length())
        while self._free:
            region = self._free.pop()
            if region.size >= needed:
                return region
            self._drop(region)
        if self._count + len(self._leaving) >= MOST_REGIONS:
            return None
        try:
            return await self._made()
        except (AioRpcError, OSError) as error:
            if not self._failed:
                said = self._said(error) if isinstance(error, AioRpcError) else error
                log.warning(
                    "%s: tensors go into requests again, because shared memory can't be had: %s", self.url, said
                )
                self._failed = True
            return None

    async def _made(self) -> Region:
        """A new region that the server has mapped. Raises AioRpcError and OSError."""
        self._count += 1
        region = None
        try:
            region = Region(self._size)
            request = SystemSharedMemoryRegisterRequest(name=region.name, key=f"/{region.name}", byte_size=region.size)
            await self._stub.SystemSharedMemoryRegister(request, **self._within(REGISTER_TIMEOUT))
        except BaseException:
            self._count -= 1
            if region is not None:
                region.close()
            raise
        return region

    def _drop(self, region: Region) -> None:
        """Remove a region here, and soon on the server."""
        self._count -= 1
        region.close()
        self._unregister_soon(region.name)

    def _unregister_soon(self, name: str) -> asyncio.Task[None]:
        """Unregister a region while requests go on, because the server may refuse it for a while. Until then it counts."""
        task = self._leaving.get(name)
        if task is None:
            task = self._leaving[name] = asyncio.get_running_loop().create_task(self._unregister(name))
            task.add_done_callback(lambda _task: self._leaving.pop(name))
        return task

    async def _unregister(self, name: str) -> None:
        request = SystemSharedMemoryUnregisterRequest(name=name)
        for wait in (*IN_USE_WAITS, 0.0):
            try:
                await self._stub.SystemSharedMemoryUnregister(request, **self._within(REGISTER_TIMEOUT))
                return
            except AioRpcError as error:
                said, in_use = self._said(error), "in use" in (error.details() or "")
            if not in_use:
                break
            await asyncio.sleep(wait)
        log.debug("%s", said)  # the next worker that starts does it

    @staticmethod
    async def _wait_until_left(tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until these regions are unregistered, but not longer than `LEAVE_TIMEOUT`."""
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVE_TIMEOUT)

    def _within(self, seconds: float) -> dict[str, Any]:
        return {"timeout": seconds, "metadata": self._metadata}


def _request(
    model: str,
    version: str,
    inputs: Mapping[str, npt.NDArray[Any]],
    items: Sequence[Any],
    outputs: Sequence[str],
    region: str,
) -> bytes:
    """A request whose tensors are in the region, one after another."""
    made = ModelInferRequest(model_name=model, model_version=version, outputs=[{"name": name} for name in outputs])
    at = 0
    for (name, array), raw in zip(inputs.items(), items, strict=True):
        tensor = made.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        size = bytes_in(raw)
        tensor.parameters["shared_memory_region"].string_param = region
        tensor.parameters["shared_memory_offset"].int64_param = at
        tensor.parameters["shared_memory_byte_size"].int64_param = size
        at += size
    return bytes(made.SerializeToString())
