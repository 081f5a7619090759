"""Outputs that change, and those that come as items in place of raw bytes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.kserve.endpoint import TensorMetadata
from millstream.inference.executors.kserve.output_checks import OutputChecks
from tests.inference.executors.remote_models import missing_for_kserve, write_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

if (missing := missing_for_kserve()) is not None:
    pytest.skip(missing, allow_module_level=True)

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from millstream.inference.executors.kserve.executor import KServeExecutor
from millstream.inference.executors.kserve.grpc import GrpcEndpoint


def checked(first: Any, second: Any, *, declared: tuple[int, ...] | None = None, lengths_vary: bool = False) -> None:
    checks = OutputChecks(["y"], lengths_vary=lengths_vary)
    if declared is not None:
        checks.note_metadata([TensorMetadata("y", "FP32", declared)])
    for array in (first, second):
        checks.check("y", array, lambda: "model m")


F32 = np.zeros((1, 2), np.float32)
TEXTS = np.array([["a"]], object)


@pytest.mark.parametrize(
    ("second", "options"),
    [
        (np.zeros((5, 2), np.float32), {}),
        (np.zeros((1, 3), np.float32), {"declared": (-1, -1)}),
        (np.zeros((1, 7), np.float32), {"lengths_vary": True}),
    ],
)
def test_other_numbers_of_events_and_declared_free_axes_are_accepted(second: Any, options: dict[str, Any]) -> None:
    checked(F32, second, **options)


@pytest.mark.parametrize(
    ("second", "options", "found"),
    [
        (np.zeros((1, 3), np.float32), {}, r"float32 \[3\]"),
        (np.zeros((1, 3), np.float32), {"declared": (-1, 2)}, r"float32 \[3\]"),
        (np.zeros((1, 2, 1), np.float32), {"declared": (-1, -1)}, r"float32 \[2, 1\]"),
        (np.zeros((1, 2), np.float64), {}, r"float64 \[2\]"),
        (np.zeros((1, 7), np.int64), {"lengths_vary": True}, r"int64 \[7\]"),
        (np.array([["a", "b"]], object), {}, r"text \[2\]"),
    ],
)
def test_another_type_or_width_than_at_first_is_an_outage(second: Any, options: dict[str, Any], found: str) -> None:
    with pytest.raises(ExecutorUnavailable, match=f"output `y` of model m, as in its first answer; found {found}"):
        checked(F32, second, **options)


def test_texts_of_other_lengths_are_of_the_same_type() -> None:
    checked(TEXTS, np.array([["longer"]], "S6"))


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers each request with the same outputs."""

    def __init__(self, outputs: list[Mapping[str, Any]]) -> None:
        self.outputs = outputs

    def ModelInfer(self, request: Any, _context: Any) -> Any:  # noqa: N802  (the protocol's name)
        return service_pb2.ModelInferResponse(
            model_name=request.model_name, model_version=request.model_version, outputs=self.outputs
        )


@contextmanager
def serving(*outputs: Mapping[str, Any]) -> Iterator[tuple[str, Service]]:
    service = Service(list(outputs))
    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", service
    finally:
        server.stop(None)


def output(name: str, datatype: str, shape: list[int], field: str, items: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "contents": {field: items}}


@pytest.mark.parametrize(
    ("datatype", "field", "items", "expected"),
    [
        ("BOOL", "bool_contents", [True, False], np.array([True, False])),
        ("INT32", "int_contents", [-1, 2], np.array([-1, 2], np.int32)),
        ("INT64", "int64_contents", [1 << 40, 2], np.array([1 << 40, 2])),
        ("UINT8", "uint_contents", [1, 255], np.array([1, 255], np.uint8)),
        ("UINT64", "uint64_contents", [1 << 63, 2], np.array([1 << 63, 2], np.uint64)),
        ("FP32", "fp32_contents", [1.5, 2], np.array([1.5, 2], np.float32)),
        ("FP64", "fp64_contents", [1.5, 2], np.array([1.5, 2])),
        ("BYTES", "bytes_contents", [b"a", b""], np.array([b"a", b""], object)),
    ],
)
def test_outputs_may_come_as_items_in_place_of_raw_bytes(
    datatype: str, field: str, items: list[Any], expected: Any
) -> None:
    async def run(url: str) -> Any:
        endpoint = GrpcEndpoint(url, {})
        try:
            return (await endpoint.infer("m", "1", {"x": F32}, ["y"], 30.0)).outputs["y"]
        finally:
            await endpoint.close()

    with serving(output("y", datatype, [2], field, items)) as (url, _):
        found = asyncio.run(run(url))
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        output("y", "FP16", [1, 2], "fp32_contents", [1.0, 2.0]),  # it has no field of its own
        output("y", "FP32", [1, 2], "int_contents", [1, 2]),
        output("y", "FP32", [1, 3], "fp32_contents", [1.0, 2.0]),
        output("y", "INT8", [1, 2], "int_contents", [1, 300]),
    ],
)
def test_items_that_do_not_fit_their_type_or_shape_are_an_outage(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with serving(wrong) as (url, _), pytest.raises(ExecutorUnavailable, match="Open Inference Protocol"):
        asyncio.run(asked_for(tmp_path, url))


async def asked_for(folder: Path, url: str, *, times: int = 1, service: Service | None = None) -> Any:
    """The last of some answers. The service gives its outputs in turn, if it is given."""
    executor = KServeExecutor(write_remote(folder, f"{{urls: ['{url}']}}"))
    found, turns = None, list(service.outputs) if service else []
    try:
        for turn in range(times):
            if service is not None:
                service.outputs = [turns[turn]]
            found = (await executor.run({"x": F32}, 10.0))["y"].tolist()
        return found
    finally:
        await executor.close()


def test_executor_checks_each_answer(tmp_path: Path) -> None:
    first = output("y", "FP32", [1, 2], "fp32_contents", [1.0, 2.0])
    wide = output("y", "FP32", [1, 3], "fp32_contents", [1.0, 2.0, 3.0])
    with serving(first, first, wide) as (url, service):
        assert asyncio.run(asked_for(tmp_path, url, times=2, service=service)) == [[1.0, 2.0]]
    with (
        serving(first, wide) as (url, service),
        pytest.raises(
            ExecutorUnavailable, match=r"model m version 1 \(.*\): expected float32 \[2\] an event in output `y`"
        ),
    ):
        asyncio.run(asked_for(tmp_path, url, times=2, service=service))
