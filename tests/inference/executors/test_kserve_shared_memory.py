"""Tensors in shared memory, with a real Triton where one runs here."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.servers.triton_server import Triton, write_model
from millstream.inference.errors import ModelConfigError, TimedOut
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.contract import check_executor
from millstream.inference.repository import load_version
from tests.inference.executors.remote_models import (
    POISON,
    TRITON_BODY,
    TRITON_DOUBLING,
    missing_for_kserve,
    missing_for_triton,
    write_remote,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if (missing := missing_for_kserve()) is not None:
    pytest.skip(missing, allow_module_level=True)

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from millstream.inference.executors.kserve import regions, shared_memory
from millstream.inference.executors.kserve.regions import Region, remove_left_over
from millstream.inference.executors.kserve.shared_memory import SharedMemoryEndpoint

INPUTS = np.arange(10, dtype=np.float32).reshape(5, 2)
LENGTHS = """
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [2] }, { name: "t" data_type: TYPE_STRING dims: [1] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [2] }]
"""
LENGTHS_BODY = (
    'return answer(y=tensor(request, "x") + np.array([[len(t[0])] for t in tensor(request, "t")], np.float32))'
)
LENGTHS_MAPPING = """
inputs:
  - {tensor: x, fields: [a, b], dtype: float32}
  - {tensor: t, fields: [t], dtype: string}
outputs: [{tensor: y}]
"""


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)
    models = tmp_path_factory.mktemp("triton")
    write_model(models, "m", TRITON_DOUBLING, TRITON_BODY)
    write_model(models, "lengths", LENGTHS, LENGTHS_BODY)
    with Triton(models) as server:
        yield server.start()


@pytest.fixture(autouse=True)
def _for_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "LEAST_BYTES", 1)


def registered(triton: Triton) -> set[str]:
    """Names of the regions that Triton has mapped."""
    found: list[dict[str, Any]] = triton.get("/v2/systemsharedmemory/status")
    return {each["name"] for each in found}


def files() -> set[str]:
    return {path.name for path in regions.FOLDER.glob(f"{regions.PREFIX}*")}


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.01)


def opened(folder: Path, triton: Triton) -> Any:
    executor = open_executor(write_remote(folder, f"{{urls: [{triton.grpc}], shared_memory: true}}"), max_events=64)
    executor.warm_up()
    return executor


def test_an_executor_with_shared_memory_keeps_the_contract_and_leaves_nothing(tmp_path: Path, triton: Triton) -> None:
    before = files()
    executor = opened(tmp_path, triton)
    check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS}, bad={"x": np.array([[1, POISON]], np.float32)})
    mine = registered(triton)
    assert mine
    assert mine <= files() - before
    executor.close()
    assert not registered(triton)
    assert not mine & files()


@pytest.mark.full
def test_several_tensors_and_texts_are_in_one_region(tmp_path: Path, triton: Triton) -> None:
    server = f"{{urls: [{triton.grpc}], shared_memory: true}}"
    write_remote(tmp_path, server, config=LENGTHS_MAPPING, name="lengths")
    executor = open_executor(load_version(tmp_path, "lengths"), max_events=64)
    executor.warm_up()
    for texts in (["", "a", "bc", "def", "ghij"], ["x" * 100_000] * 5):  # the second ones need a larger region
        found = executor.run({"x": INPUTS, "t": np.array(texts, object).reshape(5, 1)})
        assert found["y"].tolist() == (INPUTS + [[len(text)] for text in texts]).tolist()
    until(lambda: len(registered(triton)) == 1)
    executor.close()


@pytest.mark.full
def test_a_server_that_was_started_anew_is_no_fault_of_events(tmp_path: Path) -> None:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)
    models = tmp_path / "triton"
    write_model(models, "m", TRITON_DOUBLING, TRITON_BODY)
    with Triton(models) as server:
        executor = opened(tmp_path, server.start())
        server.kill()
        server.start()
        assert not registered(server)
        for _ in range(2):
            assert executor.run({"x": INPUTS})["y"].tolist() == (2 * INPUTS).tolist()
        assert len(registered(server)) == 1
        executor.close()


KILLED = """
import sys, time
from pathlib import Path
from tests.inference.executors import test_kserve_shared_memory as test
class Server: grpc = sys.argv[2]
executor = test.opened(Path(sys.argv[1]), Server)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.full
def test_regions_of_a_killed_process_are_removed_here_and_on_the_server(tmp_path: Path, triton: Triton) -> None:
    before = files()
    command = [sys.executable, "-P", "-c", KILLED, str(tmp_path / "killed"), triton.grpc]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        alive = opened(tmp_path / "alive", triton)  # it removes nothing of a process that lives
        left = files() - before
        process.kill()
    assert len(left & registered(triton)) == 2
    executor = opened(tmp_path / "next", triton)
    assert len(left & files()) == 1  # of `alive`
    assert len(left & registered(triton)) == 1
    assert alive.run({"x": INPUTS})["y"].tolist() == (2 * INPUTS).tolist()
    executor.close()
    alive.close()


class SlowService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Notes the regions of requests, and answers only after `seconds`. It refuses to unregister a region so many times first."""

    def __init__(self, refusals: int = 0) -> None:
        self.regions: list[str] = []
        self.seconds = 0.0
        self.refusals = refusals
        self.asked_to_unregister: list[str] = []

    def SystemSharedMemoryStatus(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.SystemSharedMemoryStatusResponse()

    def SystemSharedMemoryRegister(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return service_pb2.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.asked_to_unregister.append(request.name)
        if self.asked_to_unregister.count(request.name) <= self.refusals:
            context.abort(grpc.StatusCode.INTERNAL, f"Cannot unregister '{request.name}', it is currently in use.")
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    def ModelInfer(self, request: Any, _context: Any) -> Any:  # noqa: N802
        (tensor,) = request.inputs
        self.regions.append(tensor.parameters["shared_memory_region"].string_param)
        time.sleep(self.seconds)
        return service_pb2.ModelInferResponse(model_name=request.model_name)


@contextmanager
def serving(service: Any) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None)


def test_the_region_of_an_abandoned_request_rests_because_the_server_may_still_read_it() -> None:
    service = SlowService()

    async def run(url: str) -> None:
        endpoint = SharedMemoryEndpoint(url, {}, "here")
        for service.seconds, timeout in ((0.0, 30.0), (0.0, 30.0)):
            await endpoint.infer("m", "1", {"x": INPUTS}, ["y"], timeout)
        service.seconds = 1.0
        with pytest.raises(TimedOut):
            await endpoint.infer("m", "1", {"x": INPUTS}, ["y"], 0.2)
        service.seconds = 0.0
        await endpoint.infer("m", "1", {"x": INPUTS}, ["y"], 30.0)
        await endpoint.close()

    with serving(service) as url:
        asyncio.run(run(url))
    first, second, abandoned, other = service.regions
    assert first == second == abandoned
    assert other not in {abandoned, ""}
    assert not set(service.regions) & files()


def test_a_region_is_unregistered_once_the_server_no_longer_uses_it() -> None:
    service = SlowService(refusals=2)

    async def run(url: str) -> None:
        endpoint = SharedMemoryEndpoint(url, {}, "here")
        for events in (5, 50_000):  # the second ones need a larger region
            await endpoint.infer("m", "1", {"x": np.zeros((events, 2), np.float32)}, ["y"], 30.0)
        await endpoint.close()

    with serving(service) as url:
        asyncio.run(run(url))
    small, large = service.regions
    assert sorted(service.asked_to_unregister) == sorted([*3 * [small], *3 * [large]])


def test_no_request_waits_for_regions_that_the_server_refuses_to_unregister(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "MOST_REGIONS", 2)
    monkeypatch.setattr(shared_memory, "IN_USE_WAITS", 100 * (600.0,))
    service = SlowService(refusals=10**6)

    async def run(url: str) -> None:
        endpoint = SharedMemoryEndpoint(url, {}, "here")
        for events in (5, 5_000, 50_000, 500_000):  # each needs a larger region
            await endpoint.infer("m", "1", {"x": np.zeros((events, 2), np.float32)}, ["y"], 30.0)
        await endpoint.close()

    with serving(service) as url:
        asyncio.run(run(url))
    assert service.asked_to_unregister == service.regions[:2]  # once each; the other tries would come after the end
    assert list(map(bool, service.regions)) == [True, True, False, False]  # what isn't unregistered counts
    assert not set(service.regions) & files()


def test_more_requests_than_regions_have_their_tensors_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "MOST_REGIONS", 1)
    service = SlowService()
    service.seconds = 0.3

    async def run(url: str) -> None:
        endpoint = SharedMemoryEndpoint(url, {}, "here")
        await asyncio.gather(*(endpoint.infer("m", "1", {"x": INPUTS}, ["y"], 30.0) for _ in range(2)))
        await endpoint.close()

    with serving(service) as url:
        asyncio.run(run(url))
    assert sorted(map(bool, service.regions)) == [False, True]


def test_a_server_without_shared_memory_is_a_mistake_of_the_options() -> None:
    async def run(url: str) -> None:
        endpoint = SharedMemoryEndpoint(url, {}, "config.yaml:2: server.shared_memory")
        try:
            await endpoint.prepare()
        finally:
            await endpoint.close()

    with (
        serving(service_pb2_grpc.GRPCInferenceServiceServicer()) as url,
        pytest.raises(
            ModelConfigError, match=r"server\.shared_memory: expected a server that can open .* UNIMPLEMENTED"
        ),
    ):
        asyncio.run(run(url))


@pytest.mark.parametrize("url", ["grpc://scores:8001", "http://localhost:8000", "grpc://10.0.0.1:8001"])
def test_servers_elsewhere_and_http_are_refused(tmp_path: Path, url: str) -> None:
    model = write_remote(tmp_path, f"{{urls: ['grpc://localhost:8001', '{url}'], shared_memory: true}}")
    with pytest.raises(ModelConfigError, match=rf"server\.shared_memory: expected only servers .*{url}"):
        open_executor(model)


def test_a_region_that_does_not_fit_leaves_no_file() -> None:
    before = files()
    with pytest.raises(OSError, match=r"No space left|too large|Cannot allocate"):
        Region(1 << 50)
    assert files() == before


def test_only_regions_without_an_owner_are_left_over() -> None:
    region = Region(16)
    region.write([b"ab", np.array([1], np.int16), np.empty((0, 2), np.float32)])
    orphan = regions.FOLDER / f"{regions.PREFIX}test-{region.name}"
    orphan.write_bytes(b"")
    assert (regions.FOLDER / region.name).read_bytes()[:4] == b"ab\1\0"
    remove_left_over()
    assert not orphan.exists()
    assert (regions.FOLDER / region.name).exists()
    region.close()
    assert not (regions.FOLDER / region.name).exists()
