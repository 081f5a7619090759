"""Asks whether a broker answers."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from millstream.topics.admin import Admin
from millstream.topics.unreachable import cause_of

# An admin client waits up to 10 s between two tries to connect, which would be how late a broker's return is seen.
PROBE_DEFAULTS = {"reconnect.backoff.max.ms": 1000}


class BrokerProbe:
    """A client of its own for this question. It keeps a connection: who asks seldom makes one for each outage."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._admin = Admin({**client, **PROBE_DEFAULTS})

    def silent(self, timeout: float) -> str | None:
        """Why no broker answers within so many seconds; None: one does."""
        try:
            self._admin.list_topics(timeout=timeout)
        except KafkaException as error:
            return cause_of(error.args[0], self._admin.causes)
        return None
