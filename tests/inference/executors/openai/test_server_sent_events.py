"""Server-sent events, in chunks of any size."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.executors.openai.server_sent_events import MAX_EVENT_BYTES, EventStream, ServerSentEvent

STREAM = (
    b": a comment\n"
    b'data: {"a": 1}\n\n'
    b"event: error\r\ndata: first\r\ndata:second\r\n\r\n"
    b"id: 7\rdata: with a CR\r\r"
    b"data\n\n"
    b"\n\n"
    b'error: {"code": 500}\n\n'
    b"data: [DONE]"
)
EVENTS = [
    ServerSentEvent(b"", b'{"a": 1}'),
    ServerSentEvent(b"error", b"first\nsecond"),
    ServerSentEvent(b"", b"with a CR"),
    ServerSentEvent(b"", b""),
    ServerSentEvent(b"error", b'{"code": 500}'),
    ServerSentEvent(b"", b"[DONE]"),
]


def events_of(*chunks: bytes) -> list[ServerSentEvent]:
    stream = EventStream()
    return [event for chunk in chunks for event in stream.feed(chunk)] + stream.end()


@given(st.sets(st.integers(0, len(STREAM))))
def test_chunks_of_any_size_give_the_same_events(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:stop] for start, stop in pairwise(places)]
    assert events_of(*chunks) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_ends_an_event(end: bytes) -> None:
    assert events_of(b"data: x" + end + end + b"data: y" + end + end) == [
        ServerSentEvent(b"", b"x"),
        ServerSentEvent(b"", b"y"),
    ]


def test_a_byte_order_mark_at_the_start_is_left_out() -> None:
    marked = b"\xef\xbb\xbfdata: x\n\n"
    assert events_of(marked) == [ServerSentEvent(b"", b"x")]
    assert events_of(*(marked[at : at + 1] for at in range(len(marked)))) == [ServerSentEvent(b"", b"x")]


def test_an_event_goes_on_as_soon_as_its_last_byte_is_there() -> None:
    stream = EventStream()
    assert stream.feed(b"data: x\n") == []
    assert stream.feed(b"\n") == [ServerSentEvent(b"", b"x")]


def test_a_stream_without_events_gives_none() -> None:
    assert events_of(b": ping\n\n", b"retry: 10\n\n", b"") == []


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_read_or_refused(chunks: list[bytes]) -> None:
    events_of(*chunks)


def test_an_endless_event_is_refused() -> None:
    stream = EventStream()
    with pytest.raises(ValueError, match="expected events of at most"):
        for _ in range(MAX_EVENT_BYTES // 65536 + 2):
            stream.feed(b"data: " + b"x" * 65536)


def test_an_endless_event_of_empty_lines_is_refused() -> None:
    stream = EventStream()
    with pytest.raises(ValueError, match="expected events of at most"):
        for _ in range(MAX_EVENT_BYTES // 1000 + 2):
            stream.feed(b"data:\n" * 1000)


def test_an_endless_line_in_single_bytes_is_refused() -> None:
    stream = EventStream()
    with pytest.raises(ValueError, match="expected events of at most"):
        for _ in range(MAX_EVENT_BYTES + 2):
            stream.feed(b"x")
