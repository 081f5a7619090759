"""Buffers into which micro-batches are padded. They are used again and again, so a call allocates nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.executors.free_list import FreeList
from millstream.inference.executors.interface import Tensors

Allocate = Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]
"""Makes an array of a shape and a type, with arbitrary content: `np.empty` or `pinned`."""


class StagingBuffers:
    """Pads micro-batches. Calls at the same time have their own buffers, which are as large as the largest call was."""

    def __init__(self, allocate: Allocate = np.empty) -> None:
        """Args:
        allocate: makes the buffers.
        """
        self._buffers = FreeList(lambda: _Buffers(allocate))

    @contextmanager
    def padded(self, tensors: Tensors, size: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The tensors, padded to `size` events by repeating the last event, so that the model gets only real values.

        The arrays are valid until the end of the context.
        """
        with self._buffers.borrowed() as buffers:
            yield {name: buffers.filled(name, array, size) for name, array in tensors.items()}


class _Buffers:
    """The buffers of one call."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._items: dict[tuple[str, np.dtype[Any]], npt.NDArray[Any]] = {}  # flat

    def filled(self, name: str, array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
        events, shape = len(array), (size, *array.shape[1:])
        buffer = self._flat(name, array.dtype, prod(shape)).reshape(shape)
        buffer[:events] = array
        buffer[events:] = array[-1]
        return buffer

    def _flat(self, name: str, dtype: np.dtype[Any], items: int) -> npt.NDArray[Any]:
        flat = self._items.get((name, dtype))
        if flat is None or len(flat) < items:
            flat = self._items[name, dtype] = self._allocate((items,), dtype)
        return flat[:items]
