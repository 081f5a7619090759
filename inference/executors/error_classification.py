"""Classifies a runtime's exceptions: the events, the memory or the device caused them."""

import re

from millstream.inference.errors import ExecutorLost, ExecutorUnavailable, InferenceError, ModelRejected, OutOfMemory

OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "failed to allocate memory",
    "can't allocate memory",
    "alloc_failed",
    "resource_exhausted",
)
OUT_OF_MEMORY_CLASSES = {
    "MemoryError",
    "OutOfMemoryError",
    "ResourceExhaustedError",
}  # Python, torch and CuPy, TensorFlow
DEVICE_ERROR_MESSAGES = ("cuda failure", "cuda error", "cublas", "cudnn", "ep_fail", "device is lost")
DEVICE_ERROR_CLASSES = {"AcceleratorError"}  # torch
# After these errors, the CUDA context of the process is lost, and every later call fails. (CUDA's documentation of
# cudaErrorIllegalAddress, cudaErrorAssert and similar errors: "the process must be terminated and relaunched".)
CONTEXT_LOST_MESSAGES = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "illegal instruction",
    "launch failure",
    "uncorrectable ecc",
    "hardware stack error",
    "device is lost",
)

_STACK = re.compile(r"\n(?=Exception raised from |frame #0: )")


def line_of(error: BaseException) -> str:
    """The exception's text in one line. If it is long, its middle is left out."""
    line = " ".join(_own_words(error).split())
    return line if len(line) <= 500 else f"{line[:240]} ... {line[-240:]}"


def classify_error(error: Exception, place: str) -> InferenceError:
    """The error for a native runtime's exception. `place` names the model in the message."""
    lowered = _own_words(error).lower()
    classes = {kind.__name__ for kind in type(error).__mro__}
    said = f"{place}: {line_of(error) or type(error).__name__}"
    if classes & OUT_OF_MEMORY_CLASSES or any(words in lowered for words in OUT_OF_MEMORY_MESSAGES):
        return OutOfMemory(said)
    if classes & DEVICE_ERROR_CLASSES or any(words in lowered for words in DEVICE_ERROR_MESSAGES):
        return (
            ExecutorLost(said)
            if any(words in lowered for words in CONTEXT_LOST_MESSAGES)
            else ExecutorUnavailable(said)
        )
    return ModelRejected(said)


def _own_words(error: BaseException) -> str:
    """The text without the model's code and without a stack of C++, which may contain any word."""
    try:
        said = str(error)
    except Exception as failed:  # a class of the model's own
        said = f"an exception whose text can't be made: {type(failed).__name__}"
    text = _STACK.split(said, maxsplit=1)[0]
    if text.startswith("The following operation failed in the TorchScript interpreter"):
        return text.rstrip().rsplit("\n", 1)[-1]
    return text
