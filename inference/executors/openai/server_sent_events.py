"""Splits a stream of bytes into server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html). Pure."""

import re
from typing import NamedTuple

MAX_EVENT_BYTES = 1 << 20  # of one event that is not complete
# A CR at the end of a chunk may be half of a CRLF, so it ends a line only once the next byte has come.
_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event."""

    kind: bytes  # its type; empty: it states none
    data: bytes


class EventStream:
    """Collects chunks of any size, and returns the events that they complete."""

    def __init__(self) -> None:
        self._tail = b""  # a line without its end
        self._begun = False  # whether a byte has come
        self._kind = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that end in this chunk.

        Raises:
            ValueError: an event has more than `MAX_EVENT_BYTES`.
        """
        if not self._begun and chunk:
            chunk, self._begun = chunk.removeprefix(_BOM), True
        *lines, self._tail = _LINE_END.split(self._tail + chunk)
        events = [event for line in lines if (event := self._line(line)) is not None]
        if len(self._tail) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise ValueError(f"expected events of at most {MAX_EVENT_BYTES:,} bytes, found a larger one")
        return events

    def end(self) -> list[ServerSentEvent]:
        """The event that the stream's end completes: some servers leave out the empty line after the last one."""
        lines, self._tail = (self._tail.removesuffix(b"\r"), b""), b""
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> ServerSentEvent | None:
        """The event that an empty line ends."""
        if not line:
            data, kind, self._data, self._kind = self._data, self._kind, [], b""
            return ServerSentEvent(kind, b"\n".join(data)) if data else None
        name, _, value = line.partition(b":")  # a comment has an empty name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._kind = value
        elif name == b"error":  # no field of the specification, but llama.cpp's server reports errors in it
            self._kind = name
            self._data.append(value)
        return None
