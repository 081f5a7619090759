"""Asks whether a broker answers, and whether the cluster still has the data that it had."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from millstream.topics.admin import Admin, is_embedded
from millstream.topics.cluster_check import ClusterCheck, ClusterState
from millstream.topics.unreachable import cause_of

# An admin client waits up to 10 s between two tries to connect, which would be how late a broker's return is seen.
PROBE_DEFAULTS = {"reconnect.backoff.max.ms": 1000}


class BrokerProbe:
    """A client of its own for these questions. It keeps a connection. One thread asks at a time."""

    def __init__(self, client: Mapping[str, Any], topics: Sequence[str] = ()) -> None:
        """Args:
        client: the settings of a Kafka client, with `bootstrap.servers`.
        topics: those that `change` looks at.
        """
        self._admin = Admin({**client, **PROBE_DEFAULTS})
        self._topics = topics
        self._check = ClusterCheck(self._admin.bootstrap)
        self._embedded = True  # until a broker says that it isn't

    def silent(self, timeout: float) -> str | None:
        """Why no broker answers within so many seconds; None: one does."""
        try:
            self._cluster(timeout)
        except KafkaException as error:
            return cause_of(error.args[0], self._admin.causes)
        return None

    def change(self, timeout: float) -> str | None:
        """What the cluster has lost since the first call (see `ClusterCheck`); None: nothing, or no broker answers now.

        The embedded broker names no topic IDs, but each of its starts is another cluster.
        """
        try:
            cluster = self._cluster(timeout)
            topics, missing = ({}, frozenset[str]()) if self._embedded else self._ids(timeout)
        except KafkaException:
            return None
        return self._check.change(ClusterState(cluster, topics, missing))

    def _cluster(self, timeout: float) -> str:
        """The cluster's ID. The embedded broker only tells it together with all topics, which may be many in a real cluster."""
        if self._embedded:
            found = self._admin.list_topics(timeout=timeout)
            self._embedded = is_embedded(found)
            return str(found.cluster_id)
        return str(self._admin.describe_cluster(request_timeout=timeout).result().cluster_id)

    def _ids(self, timeout: float) -> tuple[dict[str, str], frozenset[str]]:
        """The IDs of the topics that this user may see, and the topics that don't exist."""
        found: dict[str, str] = {}
        missing = set()
        asked = self._admin.describe_topics(TopicCollection(list(self._topics)), request_timeout=timeout)
        for topic, future in asked.items():
            try:
                found[topic] = str(future.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    missing.add(topic)
                elif error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
        return found, frozenset(missing)
