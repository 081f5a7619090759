"""A worker with a bug that one event triggers: `buggy_stage.py BUG work PIPELINE ...`."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

from millstream.consumers.batch.batcher import Batcher
from millstream.consumers.cli import main as cli
from millstream.consumers.decode.decoder import BlockDecoder
from millstream.consumers.execute.flights import Flights
from millstream.consumers.source.kafka_source import Source
from millstream.consumers.worker import build
from millstream.schemas import column_buffers

if TYPE_CHECKING:
    from millstream.consumers.events import DecodedBatch, FetchedBatch
    from millstream.consumers.flow.batch_window import BatchWindow

TRIGGER = b'"e7"'  # in the value of an event


def break_decoder(*, hangs: bool) -> None:
    """Let the decoder raise, or never return, when the event is among the records."""
    decode = BlockDecoder.decode

    def buggy(self: BlockDecoder, polled: FetchedBatch) -> DecodedBatch:
        if polled.rejection is None and any(TRIGGER in (value or b"") for value in polled.records.values):
            if hangs:
                threading.Event().wait()
            raise KeyError("e7")
        return decode(self, polled)

    BlockDecoder.decode = buggy  # type: ignore[method-assign]


def break_batcher() -> None:
    """Let the batcher, which no net is under, raise when a block holds the event."""
    add = Batcher.add

    def buggy(self: Batcher, block: DecodedBatch) -> None:
        if "e7" in list(block.ids):
            raise KeyError("e7")
        add(self, block)

    Batcher.add = buggy  # type: ignore[method-assign]


def skip_number() -> None:
    """Let the second batch get a number that is too high."""
    next_number = Flights.next_number

    def buggy(self: Flights) -> int:
        number = next_number(self)
        return next_number(self) if number == 1 else number

    Flights.next_number = buggy  # type: ignore[method-assign]


def lack_memory_to_read() -> None:
    """Let each poll that brings records ask numpy for more memory than there is."""
    poll = Source.poll

    def short(self: Source, limit: int, timeout: float, window: BatchWindow | None = None) -> FetchedBatch | None:
        polled = poll(self, limit, timeout, window)
        if polled is not None:
            np.empty(2**60, np.uint8)
        return polled

    Source.poll = short  # type: ignore[method-assign]


def lack_memory_to_decode() -> None:
    """Let the decoder's buffers be larger than all memory."""
    column_buffers.KEPT = 2**60
    column_buffers.SPARE = []


if __name__ == "__main__":
    match sys.argv[1]:
        case "decode-raises":
            break_decoder(hangs=False)
        case "decode-hangs":
            build.DECODE_TIMEOUT = 2.0  # in place of a bound that leaves a slow registry its time
            break_decoder(hangs=True)
        case "batch-raises":
            break_batcher()
        case "number-skipped":
            skip_number()
        case "read-short":
            lack_memory_to_read()
        case "decode-short":
            lack_memory_to_decode()
    sys.exit(cli.run(sys.argv[2:]))
