"""What the lag's watch says of a broker that is away."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from millstream.consumers.observability.lag_metrics import LagWatch
from millstream.topics.errors import BrokerUnreachableError
from millstream.topics.lag import PartitionLag
from tests.broker.clients import wait_until

AWAY = BrokerUnreachableError("no Kafka broker answers.", "Correct `kafka.bootstrap`.")


class Reader:
    """Reads a lag if `is_up`."""

    is_up = False

    def read(self) -> list[PartitionLag]:
        if not self.is_up:
            raise AWAY
        return [PartitionLag("t", 0, 0, 0, 0, 0, True, 0.0, 0)]

    def close(self) -> None: ...


def test_outage_after_the_start_asks_for_no_correction_of_a_file() -> None:
    reader: Any = Reader()
    with closing(LagWatch(lambda: reader, 0.01)) as watch:
        wait_until(lambda: watch.problem != "", 10, "the first try")
        assert watch.problem == "no Kafka broker answers. Correct `kafka.bootstrap`."
        reader.is_up = True
        wait_until(lambda: watch.problem == "" and watch.latest() is not None, 10, "a lag")
        reader.is_up = False
        wait_until(lambda: watch.problem != "", 10, "the outage")
        assert watch.problem == "no Kafka broker answers."
