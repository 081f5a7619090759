"""Asks whether a broker answers, and whether the cluster still has the data that it had."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from millstream.topics.admin import Admin
from millstream.topics.cluster_check import ClusterCheck, ClusterState
from millstream.topics.unreachable import cause_of

# An admin client waits up to 10 s between two tries to connect, which would be how late a broker's return is seen.
PROBE_DEFAULTS = {"reconnect.backoff.max.ms": 1000}
# Seconds without an answer after which the next question has a new client: a client may have forgotten all brokers
# (github.com/confluentinc/librdkafka/issues/5301).
NEW_CLIENT_AFTER = 20.0


class BrokerProbe:
    """A client of its own for these questions. It keeps a connection. One thread asks at a time.

    It only asks for metadata. Requests of the admin API would also tell the topics' IDs. But around a broker that stood still,
    they were seen to abort the whole process (librdkafka 2.16, `rd_kafka_admin_response_parse: Assertion rko_result failed`).
    """

    def __init__(self, client: Mapping[str, Any], topics: Sequence[str] = ()) -> None:
        """Args:
        client: the settings of a Kafka client, with `bootstrap.servers`.
        topics: those that `change` looks at.
        """
        self._settings = {**client, **PROBE_DEFAULTS}
        self._admin = Admin(self._settings)
        self._answered = time.monotonic()  # or when the client was created
        self._check = ClusterCheck(self._admin.bootstrap, topics)
        self._state: ClusterState | None = None  # None: no broker has answered the last question

    def silent(self, timeout: float) -> str | None:
        """Why no broker answers within so many seconds; None: one does."""
        self._state = None
        try:
            found = self._admin.list_topics(timeout=timeout)
        except KafkaException as error:
            cause = cause_of(error.args[0], self._admin.causes)
            if time.monotonic() - self._answered > NEW_CLIENT_AFTER:
                self._admin, self._answered = Admin(self._settings), time.monotonic()
            return cause
        self._answered = time.monotonic()
        partitions = {name: len(topic.partitions) for name, topic in found.topics.items() if topic.partitions}
        self._state = ClusterState(str(found.cluster_id), partitions)
        return None

    def change(self) -> str | None:
        """What the cluster has lost since the first call, by the last answer (see `ClusterCheck`); None: nothing."""
        return None if self._state is None else self._check.change(self._state)
