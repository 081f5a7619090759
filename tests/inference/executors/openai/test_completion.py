"""Completions, put together from chunks and from whole responses."""

import pytest

from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.openai.completion import Completion, CompletionBuilder, check_finished
from millstream.inference.executors.openai.server_sent_events import EventStream, ServerSentEvent
from tests.inference.executors.openai.server import chunk_of, said, sse

DONE = b"data: [DONE]\n\n"


def built(*pieces: bytes) -> CompletionBuilder:
    stream, builder = EventStream(), CompletionBuilder("http://server")
    for number, piece in enumerate(pieces):
        for event in stream.feed(piece):
            builder.add(event, float(number))
    return builder


def test_a_stream_gives_the_text_the_reason_and_the_tokens() -> None:
    usage = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    role = chunk_of({"delta": {"role": "assistant", "content": ""}})
    builder = built(role, said(" one"), said(" two"), said("", "stop"), usage, DONE)
    assert builder.completion() == Completion(" one two", "stop", 3, 2, first_token=1.0)
    assert builder.done


def test_a_stream_without_usage_and_without_its_mark_of_the_end_is_whole_once_it_gives_the_reason() -> None:
    builder = built(said(" one"), said("", "stop"))
    assert builder.completion() == Completion(" one", "stop", None, None, first_token=0.0)


def test_usage_beside_the_last_chunk_counts() -> None:
    last = sse(
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    )
    assert built(said("x"), last).completion().output_tokens == 2


def test_completions_stream_texts() -> None:
    builder = built(chunk_of({"text": " one"}), chunk_of({"text": "", "finish_reason": "length"}), DONE)
    assert builder.completion() == Completion(" one", "length", None, None, first_token=0.0)


def test_a_whole_response_has_no_time_of_its_first_token() -> None:
    builder = CompletionBuilder("http://server")
    builder.add_whole(
        b'{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}'
    )
    assert builder.completion() == Completion("hi", "stop", 1, None, None)


@pytest.mark.parametrize("pieces", [(), (said(" one"),), (said(" one"), DONE), (said(" one", "abort"), DONE)])
def test_an_answer_that_ended_early_is_asked_for_again(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ExecutorUnavailable, match="http://server ended its answer before the completion was whole"):
        built(*pieces).completion()


def test_a_chunk_that_is_no_completion_is_an_outage() -> None:
    with pytest.raises(ExecutorUnavailable, match=r"something other than a completion .*server\.urls"):
        built(b"data: <html>\n\n")


@pytest.mark.parametrize(
    "event",
    [
        sse({"error": {"message": "out of blocks", "code": 500}}),
        sse({"object": "error", "message": "out of blocks", "code": 500}),
        b'event: error\ndata: {"message": "out of blocks"}\n\n',
        b'error: {"message": "out of blocks", "code": 500}\n\n',
    ],
)
def test_an_error_in_the_stream_is_an_outage(event: bytes) -> None:
    with pytest.raises(ExecutorUnavailable, match="http://server can't answer: out of blocks"):
        built(said(" one"), event)


def test_an_error_about_the_request_rejects_it() -> None:
    with pytest.raises(ModelRejected, match="the prompt is too long for the model: maximum context length"):
        built(sse({"error": {"message": "maximum context length is 8", "code": 400}}))


def test_a_refusal_rejects_the_event() -> None:
    builder = built(chunk_of({"delta": {"refusal": "I can't help"}}), said("", "stop"))
    with pytest.raises(ModelRejected, match="the model refuses to answer: I can't help"):
        builder.completion()


def test_an_endless_refusal_takes_no_memory() -> None:
    builder = built(*[chunk_of({"delta": {"refusal": "no" * 1000}})] * 100, said("", "stop"))
    with pytest.raises(ModelRejected) as told:
        builder.completion()
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize("tokens", [-5, 10**30, 1.5, "7", True, [1]])
def test_impossible_numbers_of_tokens_count_as_none(tokens: object) -> None:
    usage = sse({"choices": None, "usage": {"prompt_tokens": tokens, "completion_tokens": 2}})
    assert built(said("hi", "stop"), usage, DONE).completion() == Completion("hi", "stop", None, 2, first_token=0.0)


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
def test_a_text_that_is_cut_off_is_rejected(reason: str) -> None:
    with pytest.raises(ModelRejected, match=f"ended with `{reason}`"):
        check_finished(Completion("x", reason), frozenset())


def test_accepted_reasons_and_unknown_ones_pass() -> None:
    check_finished(Completion("x", "length"), frozenset({"length"}))
    check_finished(Completion("x", "eos_token"), frozenset())


def test_the_first_token_is_the_first_text_that_is_not_empty() -> None:
    builder = CompletionBuilder("http://server")
    for now, content in ((1.0, ""), (2.0, "a"), (3.0, "b")):
        builder.add(ServerSentEvent(b"", b'{"choices": [{"delta": {"content": "%b"}}]}' % content.encode()), now)
    builder.add(ServerSentEvent(b"", b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}'), 4.0)
    assert builder.completion().first_token == 2.0
