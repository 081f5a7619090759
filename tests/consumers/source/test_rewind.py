"""The way back to the committed offsets while no broker answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from millstream.consumers.observability.seldom import SeldomWarnings
from millstream.consumers.source import rewind

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from confluent_kafka import TopicPartition


class Away:
    """A client whose broker doesn't answer."""

    def position(self, _partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_outage_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    failures = SeldomWarnings(lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for second in range(0, 70, 2):
            now[0] = second
            assert not rewind.seek_committed(Away(), [("in", 0)], lambda _: None, lambda _: None, failures)  # type: ignore[arg-type]
    first, later = [record.getMessage() for record in caplog.records]
    assert first.startswith("1 request for the committed offsets failed; trying again, such as: ")
    assert later.startswith("30 requests for the committed offsets failed; trying again, such as: ")
