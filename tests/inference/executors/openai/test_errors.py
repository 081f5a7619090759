"""The meaning of a server's HTTP statuses."""

import pytest

from millstream.inference.errors import ExecutorUnavailable, InferenceError, ModelRejected, Throttled
from millstream.inference.executors.openai.errors import ModelNotFound, error_of, message_of


def made(status: int, body: bytes = b"", **headers: str) -> InferenceError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of(status, named, body, "http://server/v1", "tiny")


@pytest.mark.parametrize("status", [408, 500, 502, 504, 529, 301, 302, 402, 405])
def test_an_outage_is_waited_for(status: int) -> None:
    error = made(status)
    assert type(error) is ExecutorUnavailable
    assert f"http://server/v1 can't answer (HTTP {status})" in str(error)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_says_when_it_has_room(status: int) -> None:
    error = made(status, b'{"error": {"message": "slow down"}}', retry_after="7")
    assert isinstance(error, Throttled)
    assert error.retry_after == 7.0
    assert str(error).endswith(": slow down")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_an_outage_that_says_where_the_key_is(status: int) -> None:
    error = made(status, b'{"error": {"message": "Incorrect API key provided: sk-secret"}}')
    assert type(error) is ExecutorUnavailable
    assert "refuses the API key" in str(error)
    assert "`server.api_key`" in str(error)
    assert "sk-secret" not in str(error)


def test_a_model_that_is_not_there_is_an_outage() -> None:
    assert isinstance(made(404, b'{"error": "model not found"}'), ModelNotFound)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_bad_request_is_the_events_fault(status: int) -> None:
    error = made(status, b'{"error": {"message": "bad emoji"}}')
    assert isinstance(error, ModelRejected)
    assert str(error) == f"the server rejects the request (HTTP {status}): bad emoji"


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "no", "code": "context_length_exceeded"}}',
        b'{"object": "error", "message": "This model\'s maximum context length is 1024 tokens", "code": 400}',
        b'{"error": {"message": "Requested tokens (2056) exceed context window of 1024"}}',
        b'{"error": {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}}',
    ],
)
def test_a_prompt_that_is_too_long_says_so(body: bytes) -> None:
    assert str(made(400, body)).startswith("the prompt is too long for the model: ")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "a\\nb"}}', "a b"),
        (b'{"error": "a"}', "a"),
        (b'{"message": "a"}', "a"),
        (b'{"detail": [{"loc": ["body"]}]}', "[{'loc': ['body']}]"),
        (b'"a"', "a"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"[1]", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
    ],
)
def test_the_servers_words_are_found_in_any_form(body: bytes, text: str) -> None:
    assert message_of(body).text == text


def test_a_long_message_is_cut() -> None:
    assert len(message_of(b"x" * 10_000).text) < 600
