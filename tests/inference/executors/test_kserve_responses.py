"""The bytes of responses over gRPC, as NVIDIA's client makes and reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inference.executors.remote_models import missing_for_kserve

if (missing := missing_for_kserve()) is not None:
    pytest.skip(missing, allow_module_level=True)

from tritonclient.grpc import InferResult
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from millstream.inference.executors.kserve.responses import Responses

TYPES = [np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_]


def response(outputs: dict[str, Any], *, model: str = "m", version: str = "1", **others: Any) -> bytes:
    """A serialized response with raw bytes."""
    raw = [serialize_byte_tensor(each).item() if each.dtype == object else each.tobytes() for each in outputs.values()]
    tensors = [
        {"name": name, "datatype": np_to_triton_dtype(each.dtype), "shape": each.shape}
        for name, each in outputs.items()
    ]
    made = ModelInferResponse(
        model_name=model, model_version=version, outputs=tensors, raw_output_contents=raw, **others
    )
    return bytes(made.SerializeToString())


def assert_read(responses: Responses, data: bytes) -> None:
    """Check that the answer is the one that protobuf and NVIDIA's client read."""
    expected = ModelInferResponse.FromString(data)
    found = responses.read(data)
    assert (found.model, found.version) == (expected.model_name, expected.model_version)
    assert list(found.outputs) == [each.name for each in expected.outputs]
    for name, array in found.outputs.items():
        wanted = InferResult(expected).as_numpy(name)
        assert (array.dtype, array.shape, array.tolist()) == (wanted.dtype, wanted.shape, wanted.tolist())
        assert array.flags.aligned


outputs_of_responses = st.dictionaries(
    st.sampled_from(["a", "bc"]),
    st.tuples(st.sampled_from(TYPES), st.sampled_from([(2, 4), (4, 2), (1, 8), (8,), (0, 2)]), st.integers(0, 99)),
    min_size=1,
)


@given(
    st.lists(st.tuples(outputs_of_responses, st.sampled_from("mn"), st.sampled_from(["", "1", "2", "10"])), max_size=12)
)
def test_responses_are_read_as_protobuf_reads_them_whatever_came_before(
    several: list[tuple[dict[str, Any], str, str]],
) -> None:
    responses = Responses()
    for tensors, model, version in several:
        outputs = {
            name: (np.arange(np.prod(shape, dtype=int)) + first).astype(dtype).reshape(shape)
            for name, (dtype, shape, first) in tensors.items()
        }
        assert_read(responses, response(outputs, model=model, version=version))


def test_texts_of_the_same_length_are_read_anew() -> None:
    responses = Responses()
    for texts in (["a", "bc"], ["ab", "c"], ["", "abc"]):
        assert_read(responses, response({"y": np.array([text.encode() for text in texts], object)}))


def test_other_fields_of_a_response_may_differ() -> None:
    responses, y = Responses(), {"y": np.ones((2, 1), np.float32)}
    for more in ({"id": "1"}, {"id": "2"}, {"parameters": {"a": {"int64_param": 1}, "b": {"bool_param": True}}}):
        assert_read(responses, response(y, **more))


def test_fields_in_another_order_are_read() -> None:
    items = response({"y": np.ones((2, 1), np.float32)})
    raw = ModelInferResponse(raw_output_contents=[np.ones(2, np.float32).tobytes()]).SerializeToString()
    assert items.endswith(raw)
    responses, turned = Responses(), raw + items.removesuffix(raw)
    for data in (turned, items, turned):
        assert_read(responses, data)


def test_response_that_is_cut_off_is_refused_also_after_good_ones() -> None:
    data, responses = response({"y": np.ones((2, 1), np.float32)}), Responses()
    assert_read(responses, data)
    for end in range(1, len(data)):
        try:
            found = responses.read(data[:end])
        except Exception as error:  # its kind depends on where it is cut off
            assert type(error).__name__ in {"DecodeError", "ValueError", "KeyError", "IndexError"}
        else:
            assert not found.outputs
    assert_read(responses, data)
