"""A worker's source on a consumer in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.source import kafka_source
from millstream.consumers.source.kafka_source import Source, Subscription

if TYPE_CHECKING:
    from millstream.consumers.worker.shared import Shared
    from tests.consumers.source.fake_consumer import FakeConsumer


def source_on(consumer: FakeConsumer, shared: Shared) -> Source:
    """Reads topic `in` through this consumer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_source, "Consumer", consumer.made)
        return Source(
            {},
            Subscription("g", ("in",), "earliest", {}, until_idle=False),
            assignment=shared.assignment,
            guard=shared.guard,
            health=shared.health,
            metrics=shared.metrics,
        )
