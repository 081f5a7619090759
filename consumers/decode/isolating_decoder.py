"""Decodes in spite of errors: waits for schemas during an outage, and isolates a record that makes the decoder raise."""

from collections.abc import Iterator
from dataclasses import replace

from millstream.consumers.decode.decoder import BlockDecoder
from millstream.consumers.events import DecodedBatch, FetchedBatch
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.records import packed
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.safety_net import SafetyNet, raise_expected
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.schemas.arrays import Ints


class IsolatingDecoder:
    """Decodes polls. One thread calls it."""

    def __init__(self, decoder: BlockDecoder, *, retry: Retry, watchdog: Watchdog, metrics: Metrics) -> None:
        """Args:
        decoder: turns records into a block.
        retry: waits during an outage of the schemas.
        watchdog: ends the worker if the decoder hangs.
        metrics: where to count.
        """
        self._decoder = decoder
        self._retry = retry
        self._watchdog = watchdog
        self._net: SafetyNet[FetchedBatch] = SafetyNet("decode", metrics)

    def blocks(self, polled: FetchedBatch) -> Iterator[DecodedBatch]:
        """Decode the records into one block. If the decoder raises on some of them, there are several blocks, in order.

        Raises:
            Abandoned: the worker ends while the schemas are away.
            Exception: the decoder raises on good records too.
        """
        try:
            block = self._decode(polled)
        except Exception as error:
            raise_expected(error)
            self._net.note(error)
            yield from self._isolated(polled, error)
            return
        if len(block.good):
            self._net.passed(lambda: _only(polled, block.good[:1]))
        yield block

    def _isolated(self, polled: FetchedBatch, error: Exception) -> Iterator[DecodedBatch]:
        if len(polled.records) > 1:
            for half in polled.records.halves():
                yield from self.blocks(replace(polled, records=half))
            return
        yield self._decode(replace(polled, rejection=self._net.rejection(error, self._decode)))

    def _decode(self, polled: FetchedBatch) -> DecodedBatch:
        topic, partition, offset = polled.records.position(0)
        name = f"decoding {len(polled.records)} records, the first at offset {offset} of {topic}/{partition},"
        return self._retry.call(
            "schemas",
            lambda: self._watchdog.watched(name, lambda: self._decoder.decode(polled)),
            lambda error: polled.records.position(getattr(error, "row", 0)),
        )


def _only(polled: FetchedBatch, rows: Ints) -> FetchedBatch:
    """Copy these records, so that the memory of the others can be freed."""
    records = polled.records.take_rows(rows)
    return replace(
        polled, records=replace(records, keys=packed(list(records.keys)), values=packed(list(records.values)))
    )
