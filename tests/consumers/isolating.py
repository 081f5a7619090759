"""The decode stage with what it needs, for tests of what is around it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from millstream.consumers.decode.isolating_decoder import IsolatingDecoder
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog

if TYPE_CHECKING:
    from millstream.consumers.decode.decoder import BlockDecoder

WATCHDOG = Watchdog(3600.0)  # one for all: each has a thread that lasts as long as the process


def isolating_decoder(decoder: BlockDecoder, metrics: Metrics | None = None) -> IsolatingDecoder:
    metrics = metrics or Metrics("p")
    retry = Retry(threading.Event(), Health(60), metrics)
    return IsolatingDecoder(decoder, retry=retry, watchdog=WATCHDOG, metrics=metrics)
