"""What a server's HTTP status and error body mean: the event is at fault, or the server can't answer now. Pure."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from millstream.inference.errors import ExecutorUnavailable, InferenceError, ModelRejected, Throttled
from millstream.inference.executors.retry_after import retry_after

LONGEST_MESSAGE = 500  # characters of the server's own words
_CONTEXT_CODES = {"context_length_exceeded", "string_above_max_length"}
_CONTEXT_WORDS = (
    "context length",
    "context window",
    "context size",
    "too many tokens",
    "exceeds the available context",
)


class RequestRefused(ModelRejected):
    """The server refuses the request itself, such as a parameter or the length of the prompt."""


class ModelNotFound(ExecutorUnavailable):
    """The server has no such model, or no such path. At run time, it may be loading the model again."""


class ServerMessage(msgspec.Struct):
    """The server's own words about an error."""

    text: str = ""
    code: str = ""  # a word such as `context_length_exceeded`, or an HTTP status


def error_of(status: int, headers: Mapping[str, str], body: bytes, where: str, model: str) -> InferenceError:
    """The error for a response whose status is no success.

    Args:
        status: the HTTP status.
        headers: of the response.
        body: of the response.
        where: how messages name the server.
        model: the model's name on the server.
    """
    said = message_of(body)
    quoted = f": {said.text}" if said.text else f" ({_phrase(status)})"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return ExecutorUnavailable(
            f"{where} refuses the API key (HTTP {status}). Put one that is valid for model {model} where `server.api_key` in "
            f"config.yaml says, and start the workers again"
        )
    if status == HTTPStatus.NOT_FOUND:
        return ModelNotFound(
            f"{where} has no model {model}, or no such path (HTTP 404{quoted}). Load the model, or correct `server.model` and "
            f"`server.urls` in config.yaml"
        )
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        return Throttled(f"{where} has no room (HTTP {status}){quoted}", retry_after=retry_after(headers))
    if status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.METHOD_NOT_ALLOWED}:
        return ExecutorUnavailable(f"{where} can't answer (HTTP {status}){quoted}")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status < HTTPStatus.BAD_REQUEST:
        return ExecutorUnavailable(f"{where} can't answer (HTTP {status}){quoted}")
    return refusal(said, status)


def refusal(said: ServerMessage, status: int) -> RequestRefused:
    """The error for a request that the server will never answer."""
    if is_too_long(said):
        return RequestRefused(f"the prompt is too long for the model: {said.text}")
    return RequestRefused(f"the server rejects the request (HTTP {status}): {said.text or _phrase(status)}")


def is_too_long(said: ServerMessage) -> bool:
    """Whether a prompt doesn't fit into the model's context."""
    lowered = said.text.lower()
    return said.code in _CONTEXT_CODES or any(words in lowered for words in _CONTEXT_WORDS)


def message_of(body: bytes) -> ServerMessage:
    """The message in an error's body: `{"error": {"message", "code"}}`, `{"message"}`, `{"detail"}` or plain text."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ServerMessage(_one_line(body.decode("utf-8", "replace")))
    if isinstance(found, dict) and isinstance(found.get("error"), dict | str):
        found = found["error"]
    if isinstance(found, str):
        return ServerMessage(_one_line(found))
    if not isinstance(found, dict):
        return ServerMessage()
    text = found.get("message") or found.get("detail") or found.get("error") or ""
    code = found.get("code") or found.get("type") or ""
    return ServerMessage(_one_line(str(text)), str(code))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no such status"


def _one_line(text: str) -> str:
    """The text in one line; a long one loses its end."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]} ..."
