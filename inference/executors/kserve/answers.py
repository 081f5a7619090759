"""Reads what a server answers. NVIDIA's client trusts the server, so it raises many errors for an answer that it can't read."""

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt
from tritonclient.utils import triton_to_np_dtype

from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.error_classification import line_of

MOST_BYTES = (
    256 << 20
)  # of an answer. Kafka takes 1 MB of a prediction by default, and a request has at most some hundred events
MALFORMED = (
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""What the client raises for an answer that does not follow the protocol."""


def malformed(url: str, error: BaseException) -> ExecutorUnavailable:
    """The error for an answer that does not follow the protocol. No event is to blame."""
    return ExecutorUnavailable(
        f"{url}: expected an answer of the Open Inference Protocol, found another one ({type(error).__name__}: "
        f"{line_of(error)}). Check `server.urls` in config.yaml, and the server"
    )


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Raises ExecutorUnavailable if the code inside can't read the server's answer."""
    try:
        yield
    except MALFORMED as error:
        raise malformed(url, error) from None


def arrays_of(result: Any, datatypes: Mapping[str, str]) -> dict[str, npt.NDArray[Any]]:
    """The outputs in the client's result.

    Args:
        result: the client's.
        datatypes: output -> its type in the answer, by the protocol's name.

    Raises:
        one of `MALFORMED`: the answer does not follow the protocol.
    """
    for name, datatype in datatypes.items():
        if triton_to_np_dtype(datatype) is None:  # the client would guess a type
            raise ValueError(f"output {name} has the unknown type {datatype}")
    return {name: result.as_numpy(name) for name in datatypes}
