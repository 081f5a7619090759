"""The bytes of requests over gRPC, as NVIDIA's client reads and makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.inference.executors.remote_models import missing_for_kserve

if (missing := missing_for_kserve()) is not None:
    pytest.skip(missing, allow_module_level=True)

from tritonclient.grpc.service_pb2 import ModelInferRequest
from tritonclient.utils import serialize_byte_tensor

from millstream.inference.executors.kserve.requests import Requests, raw_items, texts_in


def read(request: bytes) -> Any:
    return ModelInferRequest.FromString(request)


def made(requests: Requests, model: str, version: str, inputs: dict[str, Any], outputs: list[str]) -> bytes:
    return requests.of(model, version, inputs, [raw_items(array) for array in inputs.values()], outputs)


def test_a_request_names_the_model_its_tensors_and_the_outputs() -> None:
    inputs = {"x": np.ones((3, 2), np.float32), "text": np.array([["a"], [""], ["é"]], object)}
    found = read(made(Requests(), "m", "1", inputs, ["y", "z"]))
    assert (found.model_name, found.model_version) == ("m", "1")
    assert [(each.name, each.datatype, list(each.shape)) for each in found.inputs] == [
        ("x", "FP32", [3, 2]),
        ("text", "BYTES", [3, 1]),
    ]
    assert [each.name for each in found.outputs] == ["y", "z"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],  # not contiguous
        np.array([[True], [False]]),
        np.array([[1.5]], np.float16),
        np.empty((0, 4), np.float64),
        np.zeros((1, 31), np.float32),  # 124 bytes: the last length of one byte
        np.zeros((1, 32), np.float32),
        np.zeros((64, 1024), np.float32),  # a length of three bytes
    ],
)
def test_numbers_are_the_bytes_of_the_array(array: Any) -> None:
    requests, filled = Requests(), np.ones_like(array)
    for each in (array, filled):  # the second one takes the first part that was kept
        assert read(made(requests, "m", "1", {"x": each}, ["y"])).raw_input_contents == [each.tobytes()]


@pytest.mark.parametrize("texts", [[], ["a"], ["", "zwölf", "a\0b", "x" * 300]])
def test_texts_are_as_the_client_writes_them(texts: list[str]) -> None:
    array = np.array(texts, object)
    packed = serialize_byte_tensor(array)
    assert texts_in(array) == (packed.item() if packed.size else b"")
    assert read(made(Requests(), "m", "", {"t": array}, [])).raw_input_contents == [texts_in(array)]


def test_requests_of_other_shapes_types_models_and_outputs_are_different() -> None:
    requests, x = Requests(), np.zeros((2, 2), np.float32)
    found = [
        made(requests, "m", "1", {"x": x}, ["y"]),
        made(requests, "n", "1", {"x": x}, ["y"]),
        made(requests, "m", "2", {"x": x}, ["y"]),
        made(requests, "m", "1", {"x": x}, ["z"]),
        made(requests, "m", "1", {"x": x.reshape(4, 1)}, ["y"]),
        made(requests, "m", "1", {"x": x.view(np.int32)}, ["y"]),
    ]
    assert len({read(each).SerializeToString(deterministic=True) for each in found}) == len(found)


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        made(Requests(), "m", "1", {"t": np.array(["\ud800"], object)}, ["y"])
