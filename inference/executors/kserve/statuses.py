"""What the statuses of gRPC and HTTP mean for a micro-batch."""

from millstream.inference.errors import (
    ExecutorUnavailable,
    InferenceError,
    ModelRejected,
    OutOfMemory,
    Throttled,
    TimedOut,
)

_REJECTED = {"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"}
_THROTTLED = {"RESOURCE_EXHAUSTED"}
# Words of a server whose queue is full. Triton answers UNAVAILABLE and 503 then, as a server does that is away.
_QUEUE_FULL = ("exceeds maximum queue size", "queue is full", "too many requests")
# Words of Triton's scheduler for a request whose parameter `timeout` has passed, with UNAVAILABLE and 503.
_EXPIRED = "timeout expired"
_BUSY = {429, 503}
_WAIT = {
    401,
    403,
    404,
    408,
}  # a password that is changed, or a model that is loaded anew: events wait until it works again
_MEMORY = ("out of memory", "cudamalloc", "failed to allocate")


def of_grpc(code: str, said: str) -> InferenceError:
    """The error for a gRPC status. `code` is its name, such as UNAVAILABLE; `said` is the message for people."""
    lowered = said.lower()
    if any(words in lowered for words in _MEMORY):
        return OutOfMemory(said)
    if code in _THROTTLED or any(words in lowered for words in _QUEUE_FULL):
        return Throttled(said)
    if code == "DEADLINE_EXCEEDED" or _EXPIRED in lowered:
        return TimedOut(said)
    return ModelRejected(said) if code in _REJECTED else ExecutorUnavailable(said)


def of_http(status: int, said: str, retry_after: float | None = None) -> InferenceError:
    """The error for an HTTP status other than success. `retry_after`: seconds, if the server said so."""
    lowered = said.lower()
    if any(words in lowered for words in _MEMORY):
        return OutOfMemory(said)
    if status == 429 or (status in _BUSY and (retry_after is not None or any(w in lowered for w in _QUEUE_FULL))):
        return Throttled(said, retry_after)
    if status == 503 and _EXPIRED in lowered:
        return TimedOut(said)
    return ModelRejected(said) if 400 <= status < 500 and status not in _WAIT else ExecutorUnavailable(said)
