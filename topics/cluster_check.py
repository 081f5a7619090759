"""Finds out that a cluster came back without its data: another cluster answers, or topics are gone. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Looks in a row that must miss a topic: a broker that has just started may not know all topics yet.
MISSING_LOOKS: Final = 3
_NEXT: Final = (
    "This worker ends before it mixes the old data with the new. A new worker reads what is there now: from the group's "
    "committed offsets or, where there are none, from where `input.start` says. Events that are gone must be produced again from "
    "their source (`millstream docs runbook#millstreamworkersrestarting`)."
)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the brokers say at one moment."""

    cluster: str  # its ID
    partitions: Mapping[str, int]  # topic that this user may see -> its number of partitions


class ClusterCheck:
    """Remembers the state of a cluster, and compares later ones with it."""

    def __init__(self, bootstrap: str, topics: Collection[str]) -> None:
        """Args:
        bootstrap: the brokers' addresses, for messages.
        topics: those that must stay.
        """
        self._bootstrap = bootstrap
        self._topics = topics
        self._cluster: str | None = None
        self._partitions: dict[str, int] = {}  # the most that each topic had
        self._missed: Counter[str] = Counter()  # topic -> looks in a row that missed it

    def change(self, now: ClusterState) -> str | None:
        """What was lost since the first call, in sentences that say what to do; None: nothing."""
        self._cluster = self._cluster or now.cluster
        if now.cluster != self._cluster:
            return (
                f"Kafka at {self._bootstrap} is another cluster: it was {self._cluster}, and now is {now.cluster}. The former "
                f"one lost its data, or the address leads elsewhere. If the address is wrong, correct `kafka.bootstrap`. {_NEXT}"
            )
        there = {topic: now.partitions[topic] for topic in self._topics if topic in now.partitions}
        anew = sorted(topic for topic, count in there.items() if count < self._partitions.get(topic, 0))
        if anew:
            return (
                f"topics were deleted and created anew on {self._bootstrap} while this worker ran, with fewer partitions: "
                f"{', '.join(anew)}. Their former records are gone. Before you create a topic anew, stop the workers. Until now, "
                f"this worker may have read a new input topic from the old offsets on, and committed that. To have all of it "
                f"predicted, set the group to the earliest offsets: millstream offsets PIPELINE --to earliest --execute. {_NEXT}"
            )
        self._partitions |= there
        self._missed = Counter({topic: self._missed[topic] + 1 for topic in self._partitions.keys() - there.keys()})
        gone = sorted(topic for topic, looks in self._missed.items() if looks >= MISSING_LOOKS)
        if gone:
            return (
                f"topics are gone from {self._bootstrap}: {', '.join(gone)}. They were deleted, the brokers lost their data, or "
                f"this user may not see them any more. If they are gone, create them: "
                f"millstream topics create PIPELINE. {_NEXT}"
            )
        return None
