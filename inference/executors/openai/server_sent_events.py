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
        self._tail: list[bytes] = []  # the pieces of a line without its end
        self._may_end = False  # whether the tail ends with a CR, so that the next byte ends the line
        self._size = 0  # bytes of the tail
        self._begun = False  # whether a line has come
        self._kind = b""
        self._data: list[bytes] = []
        self._data_size = 0  # bytes of the data with their line ends

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that end in this chunk.

        Raises:
            ValueError: an event has more than `MAX_EVENT_BYTES`.
        """
        self._tail.append(chunk)
        self._size += len(chunk)
        events: list[ServerSentEvent] = []
        if self._may_end or b"\n" in chunk or b"\r" in chunk:  # otherwise the tail need not be looked at again
            *lines, last = _LINE_END.split(b"".join(self._tail))
            self._tail, self._size, self._may_end = [last], len(last), last.endswith(b"\r")
            events = self._events(lines)
        if self._size + self._data_size > MAX_EVENT_BYTES:
            raise ValueError(f"expected events of at most {MAX_EVENT_BYTES:,} bytes, found a larger one")
        return events

    def end(self) -> list[ServerSentEvent]:
        """The event that the stream's end completes: some servers leave out the empty line after the last one."""
        lines, self._tail = [b"".join(self._tail).removesuffix(b"\r"), b""], []
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[ServerSentEvent]:
        """The events that these lines end."""
        if lines and not self._begun:
            lines[0], self._begun = lines[0].removeprefix(_BOM), True
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> ServerSentEvent | None:
        """The event that an empty line ends."""
        if not line:
            data, kind, self._data, self._kind, self._data_size = self._data, self._kind, [], b"", 0
            return ServerSentEvent(kind, b"\n".join(data)) if data else None
        name, _, value = line.partition(b":")  # a comment has an empty name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._kind = value
        elif name == b"error":  # no field of the specification, but llama.cpp's server reports errors in it
            self._kind = name
            self._add(value)
        return None

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_size += len(value) + 1
