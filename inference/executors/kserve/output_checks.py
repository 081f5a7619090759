"""Checks that a server's outputs stay as they were at the start."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.kserve.endpoint import TensorMetadata

Dims = tuple[int | None, ...]
_TEXT = np.dtype(object)


class OutputChecks:
    """The types and shapes of the outputs in the first answer, which is that of the warm-up.

    An axis that the server gives the size -1 may vary; if inputs vary in length, all but the number of axes may vary.
    """

    def __init__(self, outputs: Sequence[str], *, lengths_vary: bool) -> None:
        """Args:
        outputs: the tensors.
        lengths_vary: whether inputs vary in length.
        """
        self._outputs = outputs
        self._lengths_vary = lengths_vary
        self._declared: dict[str, tuple[int, ...]] = {}  # by the server, without the first axis
        self._first: dict[str, tuple[np.dtype[Any], Dims]] = {}  # type and shape of one event; None: any size

    def note_metadata(self, outputs: Sequence[TensorMetadata]) -> None:
        """Note the shapes that the server gives its outputs. They count for the first answer behind it."""
        self._declared |= {tensor.name: tensor.shape[1:] for tensor in outputs}

    def check(self, name: str, array: npt.NDArray[Any], place: Callable[[], str]) -> None:
        """Check an output. Its type and shape are noted if it is the first one.

        Args:
            name: the tensor.
            array: [events, ...].
            place: names the server's model in a message.

        Raises:
            ExecutorUnavailable: it differs from the first one, so the server has another model by now. No event is to blame.
        """
        first, shape = self._first.get(name), array.shape[1:]
        if first == (array.dtype, shape):  # the usual answer
            return
        found = _TEXT if array.dtype.kind in "OSU" else array.dtype
        if first is None:
            self._first[name] = found, self._dims(name, shape)
            return
        dtype, dims = first
        if found == dtype and len(shape) == len(dims) and all(b in {None, a} for a, b in zip(shape, dims, strict=True)):
            return
        raise ExecutorUnavailable(
            f"expected {_described(dtype, dims)} an event in output `{name}` of {place()}, as in its first answer; found "
            f"{_described(found, shape)}. The server has another model by now: load the former one, or give the new one its "
            f"own version and start the workers again"
        )

    def _dims(self, name: str, shape: tuple[int, ...]) -> Dims:
        if self._lengths_vary:
            return (None,) * len(shape)
        declared = self._declared.get(name, ())
        if len(declared) != len(shape):
            return shape
        return tuple(None if free < 0 else size for size, free in zip(shape, declared, strict=True))


def _described(dtype: np.dtype[Any], dims: Dims) -> str:
    kind = "text" if dtype == _TEXT else str(dtype)
    return f"{kind} {['any' if size is None else size for size in dims]}".replace("'", "")
