"""Decodes in spite of errors: waits for schemas and features during an outage, and isolates a record that makes it raise."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from millstream.consumers.decode.decoder import BlockDecoder
from millstream.consumers.decode.feature_lookup import with_features
from millstream.consumers.decode.replaced_values import ReplacedValues
from millstream.consumers.events import DecodedBatch, FetchedBatch
from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.records import packed
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.safety_net import SafetyNet, raise_expected
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.schemas.arrays import Ints

if TYPE_CHECKING:
    from millstream.inference.feature_store.lookup import LookupReport

T = TypeVar("T")


class IsolatingDecoder:
    """Decodes polls. One thread calls it."""

    def __init__(self, decoder: BlockDecoder, *, retry: Retry, watchdog: Watchdog, metrics: Metrics) -> None:
        """Args:
        decoder: turns records into a block.
        retry: waits during an outage of the schemas, or of the feature store.
        watchdog: ends the worker if the decoder hangs.
        metrics: where to count.
        """
        self._decoder = decoder
        self._retry = retry
        self._watchdog = watchdog
        self._metrics = metrics
        self._replaced = ReplacedValues(decoder.replaceable, metrics)
        self._net: SafetyNet[FetchedBatch] = SafetyNet("decode", metrics)

    def blocks(self, polled: FetchedBatch) -> Iterator[DecodedBatch]:
        """Decode the records into one block. If the decoder raises on some of them, there are several blocks, in order.

        Raises:
            Abandoned: the worker ends while the schemas or the feature store are away.
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
        self._replaced.note(block.replaced)
        yield block

    def _isolated(self, polled: FetchedBatch, error: Exception) -> Iterator[DecodedBatch]:
        if len(polled.records) > 1:
            for half in polled.records.halves():
                yield from self.blocks(replace(polled, records=half))
            return
        yield self._decode(replace(polled, rejection=self._net.rejection(error, self._decode)))

    def _decode(self, polled: FetchedBatch) -> DecodedBatch:
        decoder = self._decoder
        if not decoder.lookups:
            return self._wait_for("schemas", "decoding", polled, lambda: decoder.decode(polled))
        # The steps wait apart: the schemas and the feature store may be away at different times.
        read = self._wait_for("schemas", "decoding", polled, lambda: decoder.read(polled))
        for lookup in decoder.lookups:
            started = time.perf_counter()
            read = self._wait_for("features", "looking up features for", polled, partial(with_features, read, [lookup]))
            self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "lookup")
        self._count(read.reports)
        return self._watchdog.watched(_named("decoding", polled), lambda: decoder.block(polled, read))

    def _wait_for(self, what: str, doing: str, polled: FetchedBatch, call: Callable[[], T]) -> T:
        """Return what the call returns, after as many tries as it needs. `what` it needs: schemas or features."""
        name = _named(doing, polled)
        return self._retry.call(
            what,
            lambda: self._watchdog.watched(name, call),
            lambda error: polled.records.position(getattr(error, "row", 0)),
        )

    def _count(self, reports: "Sequence[LookupReport]") -> None:
        for report in reports:
            for outcome, events in report.outcomes.items():
                if events:
                    self._metrics.count(m.FEATURE_LOOKUPS, events, report.name, outcome)
            if len(report.ages):
                self._metrics.observe_many(m.FEATURE_AGE, report.ages, report.name)


def _named(doing: str, polled: FetchedBatch) -> str:
    """What is watched, for a message."""
    topic, partition, offset = polled.records.position(0)
    return f"{doing} {len(polled.records)} records, the first at offset {offset} of {topic}/{partition},"


def _only(polled: FetchedBatch, rows: Ints) -> FetchedBatch:
    """Copy these records, so that the memory of the others can be freed."""
    records = polled.records.take_rows(rows)
    return replace(
        polled, records=replace(records, keys=packed(list(records.keys)), values=packed(list(records.values)))
    )
