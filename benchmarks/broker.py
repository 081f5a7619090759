"""The real broker that the benchmarks share."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.errors import NoBrokerError
from tests.broker.choice import choose, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.choice import Broker


@contextmanager
def real_broker() -> Iterator[Broker]:
    """A durable broker, for the length of the context. Raises NoBrokerError."""
    choice = choose(os.environ)
    if not choice.durable:
        raise NoBrokerError(
            f"A real broker is needed: {choice.why}. Install Java 17 and Maven, or set KAFKA_BOOTSTRAP."
        )
    with running(choice) as broker:
        yield broker
