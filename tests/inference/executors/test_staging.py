"""Padding into buffers that are used again: each call has its own values, and calls at the same time have their own buffers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.devices import gpus
from millstream.inference.executors.pinned_memory import pinned
from millstream.inference.executors.staging import StagingBuffers


def inputs_of(events: int, first: int = 0) -> dict[str, npt.NDArray[Any]]:
    numbers = np.arange(first, first + 2 * events).reshape(events, 2)
    return {"x": numbers.astype(np.float32), "text": numbers[:, :1].astype(str).astype(object), "n": numbers % 3 == 0}


@given(calls=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=5))
def test_each_call_has_its_events_and_then_the_last_one_again(calls: list[tuple[int, int]]) -> None:
    buffers = StagingBuffers()
    for number, (events, more) in enumerate(calls):
        given = inputs_of(events, 100 * number)
        with buffers.padded(given, events + more) as padded:
            assert padded.keys() == given.keys()
            for name, array in given.items():
                assert padded[name].dtype == array.dtype
                assert padded[name].tolist() == [*array.tolist(), *[array[-1].tolist()] * more]
                assert padded[name].flags.c_contiguous


def test_memory_is_used_again_also_for_smaller_calls() -> None:
    allocated: list[tuple[int, ...]] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        allocated.append(shape)
        return np.empty(shape, dtype)

    buffers = StagingBuffers(allocate)
    for size in (8, 2, 4, 8, 1):
        with buffers.padded({"x": np.zeros((1, 3), np.float32)}, size):
            pass
    assert allocated == [(24,)]


def test_calls_at_the_same_time_have_their_own_buffers() -> None:
    buffers = StagingBuffers()
    with buffers.padded(inputs_of(2), 4) as first, buffers.padded(inputs_of(2, 50), 4) as second:
        assert not np.shares_memory(first["x"], second["x"])
        assert first["x"][0].tolist() == [0, 1]


def test_input_that_changes_its_type_or_shape_gets_what_it_needs() -> None:
    buffers = StagingBuffers()
    for array in (np.ones((1, 2), np.float32), np.ones((1, 2), np.float64), np.ones((2, 3, 4), np.float32)):
        with buffers.padded({"x": array}, 2) as padded:
            assert padded["x"].dtype == array.dtype
            assert padded["x"].shape == (2, *array.shape[1:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.bool_, object])
def test_pinned_memory_is_an_array_with_and_without_a_gpu(dtype: Any) -> None:
    array = pinned((3, 2), np.dtype(dtype))
    array[:] = 1
    assert array.shape == (3, 2)
    assert array.dtype == dtype
    assert array.flags.writeable
    assert (array == 1).all()
    assert pinned((0,), np.dtype(dtype)).shape == (0,)


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
def test_driver_says_that_pinned_memory_is_pinned() -> None:
    import ctypes  # noqa: PLC0415

    flags = ctypes.c_uint()
    driver = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_void_p(pinned((1024,), np.dtype(np.float32)).ctypes.data)
    assert driver.cuMemHostGetFlags(ctypes.byref(flags), address) == 0
