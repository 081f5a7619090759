"""The embedded broker of the demo: librdkafka's mock cluster, which listens on TCP ports of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_ANSWER_TIMEOUT_S = 10.0


class EmbeddedBroker:
    """A Kafka broker in memory, for a demo on a machine without a broker. A context manager.

    Any Kafka client on this machine may connect to `bootstrap`. Its limits
    (measured with librdkafka 2.16):

    - all data is in memory, and is lost when the context ends;
    - a partition keeps its last 5 MB; older events are dropped, and its first offset moves on, so a reader
      that is further behind than that starts at the oldest kept event (or fails, as its
      `auto.offset.reset` says);
    - each topic has 4 partitions; topics appear when a client first asks for them (`ensure_topics`), and
      `create_topics`, topic settings and most other admin requests time out or are refused;
    - at least once only: it accepts the offsets of a transaction but does not keep them;
    - a group's first member is let in after 3 s, each later change of the group takes `session.timeout.ms`
      less 1 s; with `group.protocol=consumer` both take well under 2 s.
    """

    partitions: ClassVar[int] = 4

    def __init__(self, topics: Sequence[str] = ()) -> None:
        self._topics = tuple(topics)
        self._cluster: Producer | None = None
        self._bootstrap = ""

    def __enter__(self) -> Self:
        # The mock cluster belongs to this producer and ends with it. Its log lines are of no use: its bootstrap servers are
        # replaced at the start, and connections are lost at the end.
        self._cluster = Producer({"bootstrap.servers": "embedded", "test.mock.num.brokers": 1, "log_level": 2})
        brokers = self._cluster.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers.values()
        self._bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self.ensure_topics(self._topics)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    @property
    def bootstrap(self) -> str:
        """`host:port` for the `bootstrap.servers` of a client; RuntimeError outside the `with` block."""
        self._running()
        return self._bootstrap

    def ensure_topics(self, topics: Sequence[str]) -> None:
        """Create missing topics, with `partitions` partitions each. Names are not checked."""
        for topic in topics:
            self._running().list_topics(topic, timeout=_ANSWER_TIMEOUT_S)

    def _running(self) -> Producer:
        if self._cluster is None:
            raise RuntimeError("The embedded broker is not running. Use it as: with EmbeddedBroker() as broker: ...")
        return self._cluster
