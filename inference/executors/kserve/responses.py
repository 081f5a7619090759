"""Reads the bytes of inference responses. Those of the same shapes differ only in their items, so protobuf reads one of each."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

from millstream.inference.executors.kserve.endpoint import Answer
from millstream.inference.executors.kserve.requests import MOST_KEPT, bytes_field

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Type -> the field of a tensor that has its items, if the answer has no raw bytes."""


class _Layout(NamedTuple):
    """What responses have in common that differ only in the raw bytes of their outputs."""

    model: str
    version: str
    fixed: list[tuple[int, bytes]]  # where, and all bytes that are not an output's
    outputs: list[tuple[str, slice, np.dtype[Any], tuple[int, ...]]]  # name, where, and type and shape of the array

    def fits(self, data: bytes) -> bool:
        """Whether a response of the same length has this layout."""
        for at, part in self.fixed:  # noqa: SIM110  (a generator would take twice as long)
            if not data.startswith(part, at):
                return False
        return True


class Responses:
    """Reads serialized `ModelInferResponse`s."""

    def __init__(self) -> None:
        self._kept: dict[int, _Layout] = {}  # bytes of a response -> its layout

    def read(self, data: bytes) -> Answer:
        """The answer. Raises one of `answers.MALFORMED`, or protobuf's DecodeError: it does not follow the protocol."""
        layout = self._kept.get(len(data))
        if layout is not None and layout.fits(data):
            arrays = {
                name: np.frombuffer(data[place], dtype).reshape(shape) for name, place, dtype, shape in layout.outputs
            }
            return Answer(layout.model, layout.version, arrays)
        response = ModelInferResponse.FromString(data)
        answer = Answer(response.model_name, response.model_version, _arrays(response))
        self._keep(data, response, answer)
        return answer

    def _keep(self, data: bytes, response: Any, answer: Answer) -> None:
        """Keep the layout of a response, if all its outputs are raw numbers at its end."""
        raw = list(response.raw_output_contents)
        if len(raw) != len(answer.outputs) or any(array.dtype.hasobject for array in answer.outputs.values()):
            return
        del response.raw_output_contents[:]
        part, at = response.SerializeToString(), 0
        layout = _Layout(answer.model, answer.version, [], [])
        for (name, array), items in zip(answer.outputs.items(), raw, strict=True):
            part += bytes_field(ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER, len(items))
            layout.fixed.append((at, part))
            at += len(part)
            layout.outputs.append((name, slice(at, at + len(items)), array.dtype, array.shape))
            at, part = at + len(items), b""
        if at == len(data) and layout.fits(data):
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[len(data)] = layout


def _arrays(response: Any) -> dict[str, npt.NDArray[Any]]:
    """The outputs. Raises one of `answers.MALFORMED`: the answer does not follow the protocol."""
    raw = response.raw_output_contents
    arrays = {}
    for index, output in enumerate(response.outputs):
        datatype, shape = output.datatype, tuple(output.shape)
        dtype = triton_to_np_dtype(datatype)
        if dtype is None:
            raise ValueError(f"output {output.name} has the unknown type {datatype}")
        if not raw:
            array = np.array(list(getattr(output.contents, _CONTENTS[datatype])), dtype)
        elif datatype == "BYTES":
            array = deserialize_bytes_tensor(raw[index])
        else:
            array = np.frombuffer(raw[index], dtype)
        arrays[output.name] = array.reshape(shape)
    return arrays
