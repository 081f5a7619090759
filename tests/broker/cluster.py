"""Three brokers that keep copies of everything, each of which may die: replication 3, of which 2 must have each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.topics.local.kafka import random_uuid, server_settings
from millstream.topics.local.ports import free_ports
from tests.broker.maven import MavenKafka

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

NODES = (1, 2, 3)
INTERNAL = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    # A leader that died is replaced when its session is over; one that is back leads again soon.
    "broker.session.timeout.ms": 3000,
    "leader.imbalance.check.interval.seconds": 5,
    "replica.lag.time.max.ms": 5000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 1000,
}


class Node(MavenKafka):
    """One of the three: broker and controller."""

    heap = "300m"

    def __init__(self, node_id: int, port: int, cluster_id: str, voters: Mapping[int, int]) -> None:
        """Args:
        node_id: its own.
        port: where the broker listens.
        cluster_id: of all three.
        voters: node -> where its controller listens, of all three.
        """
        super().__init__(port, cluster_id)
        self._node_id = node_id
        self._voters = voters

    def _settings(self) -> dict[str, object]:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._voters.items())
        one = server_settings(self._node_id, self._port, self._voters[self._node_id])
        return one | INTERNAL | {"controller.quorum.voters": voters}


class KafkaCluster:
    """Three nodes of one cluster; a context manager."""

    def __init__(self) -> None:
        cluster_id = random_uuid()
        ports = free_ports(2 * len(NODES))
        voters = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self.nodes = {node: Node(node, port, cluster_id, voters) for node, port in zip(NODES, ports, strict=False)}

    @property
    def bootstrap(self) -> str:
        """All three, so that any two are enough."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all three and delete their data."""
        for node in self.nodes.values():
            node.kill()  # together they would wait for each other's leadership to move
        for node in self.nodes.values():
            node.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
