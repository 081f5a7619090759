"""Makes the bytes of inference requests. To build each as a message of protobuf copies its tensors three times more."""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.grpc.service_pb2 import ModelInferRequest
from tritonclient.utils import np_to_triton_dtype

MOST_KEPT = 1024  # first parts of requests of different shapes: batch sizes x lengths
_LENGTH = struct.Struct("<I")  # of a text, before its bytes


class Requests:
    """Makes requests. What requests of the same shapes have in common is made once."""

    def __init__(self) -> None:
        self._kept: dict[object, bytes] = {}  # what distinguishes requests without their data -> their first part

    def of(
        self,
        model: str,
        version: str,
        inputs: Mapping[str, npt.NDArray[Any]],
        items: Sequence[Any],
        outputs: Sequence[str],
    ) -> bytes:
        """A serialized `ModelInferRequest`.

        Args:
            model: the server's name of the model.
            version: the server's; empty: the server chooses.
            inputs: tensor -> [events, ...].
            items: what `raw_items` returns for each input.
            outputs: the wanted tensors.
        """
        parts: list[Any] = [self._first_part(model, version, inputs, outputs)]
        for raw in items:
            parts += bytes_field(ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER, bytes_in(raw)), raw
        return b"".join(parts)

    def _first_part(
        self, model: str, version: str, inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]
    ) -> bytes:
        """A request without its data. More fields of the message may follow."""
        key = (model, version, *outputs, *((name, array.dtype, array.shape) for name, array in inputs.items()))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            tensors = [
                {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}
                for name, array in inputs.items()
            ]
            found = self._kept[key] = ModelInferRequest(
                model_name=model, model_version=version, inputs=tensors, outputs=[{"name": name} for name in outputs]
            ).SerializeToString()
        return found


def raw_items(array: npt.NDArray[Any]) -> Any:
    """A buffer of a tensor's items as the protocol wants them. Raises UnicodeEncodeError."""
    return np.ascontiguousarray(array) if array.dtype.kind not in "OS" else texts_in(array)


def bytes_in(items: Any) -> int:
    """The length of what `raw_items` returns."""
    return len(items) if isinstance(items, bytes) else int(items.nbytes)


def texts_in(array: npt.NDArray[Any]) -> bytes:
    """Texts as the protocol wants them: the length of each in four bytes, and the text. Raises UnicodeEncodeError."""
    parts: list[bytes] = []
    for item in array.reshape(-1).tolist():
        text = item if isinstance(item, bytes) else str(item).encode()
        parts += _LENGTH.pack(len(text)), text
    return b"".join(parts)


@lru_cache(MOST_KEPT)  # most requests have the sizes of other ones
def bytes_field(number: int, length: int) -> bytes:
    """The beginning of a field of bytes: its number with the wire type 2, and its length as a varint.

    A varint has groups of seven bits, the lowest first. All but the last group have the highest bit set
    (https://protobuf.dev/programming-guides/encoding/).
    """
    found = bytearray([number << 3 | 2])
    while length > 0x7F:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found)
