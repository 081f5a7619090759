import pytest

from millstream.inference.errors import ExecutorLost, ExecutorUnavailable, ModelRejected, OutOfMemory
from millstream.inference.executors.error_classification import classify_error, line_of


class AcceleratorError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("Got invalid dimensions for input: x"), ModelRejected),
        (ValueError(""), ModelRejected),
        (MemoryError(), OutOfMemory),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), OutOfMemory),
        (RuntimeError("CUDA failure 2: out of memory ; GPU=0"), OutOfMemory),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), OutOfMemory),
        (RuntimeError("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer"), OutOfMemory),
        (RuntimeError("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED"), ExecutorUnavailable),
        (AcceleratorError("no kernel image is available"), ExecutorUnavailable),
        (AcceleratorError("CUDA error: an illegal memory access was encountered"), ExecutorLost),
        (RuntimeError("CUDA failure 719: unspecified launch failure"), ExecutorLost),
    ],
)
def test_what_a_runtime_raises_decides(error: Exception, expected: type[Exception]) -> None:
    told = classify_error(error, "model m version 1")
    assert type(told) is expected
    assert str(told).startswith("model m version 1: ")
    assert str(told).removeprefix("model m version 1: ")


def test_code_that_torchscript_shows_decides_nothing() -> None:
    head = "The following operation failed in the TorchScript interpreter.\nTraceback:\n  torch._convolution(cudnn_enabled)\n"
    told = classify_error(RuntimeError(f"{head}RuntimeError: index 7 is out of bounds\n"), "m")
    assert type(told) is ModelRejected
    assert str(told) == "m: RuntimeError: index 7 is out of bounds"
    assert (
        type(classify_error(RuntimeError(f"{head}{'x' * 900}\nRuntimeError: CUDA out of memory"), "m")) is OutOfMemory
    )


@pytest.mark.parametrize(
    "begins", ["Exception raised from cpp_fused_index_0 at a.cpp:76 (most recent call first):\n", ""]
)
def test_stack_of_cpp_decides_nothing(begins: str) -> None:
    stack = f"{begins}frame #0: cublasCreate + 0x9d (0x7f in libcudnn.so)\n"
    told = classify_error(RuntimeError(f"index out of bounds: 0 <= tmp8 < 3\n{stack}"), "m")
    assert type(told) is ModelRejected
    assert str(told) == "m: index out of bounds: 0 <= tmp8 < 3"


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    line = line_of(ValueError(f"begins\n{'x ' * 900}\tends"))
    assert line.startswith("begins x")
    assert line.endswith("x ends")
    assert len(line) < 500


def test_text_that_cannot_be_made_is_told() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise KeyError("detail")

    assert line_of(BrokenError()) == "an exception whose text can't be made: KeyError"
    assert type(classify_error(BrokenError(), "m")) is ModelRejected
