"""Finds out that a cluster came back without its data: another cluster answers, or topics were created anew. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    topics: Mapping[str, str]  # topic -> its ID; without topics whose ID is not told
    missing: frozenset[str] = frozenset()  # topics that don't exist


class ClusterCheck:
    """Remembers the first state of a cluster, and compares later ones with it."""

    def __init__(self, bootstrap: str) -> None:
        """Args:
        bootstrap: the brokers' addresses, for messages.
        """
        self._bootstrap = bootstrap
        self._first: ClusterState | None = None
        self._missed: Counter[str] = Counter()  # topic -> looks in a row that missed it

    def change(self, now: ClusterState) -> str | None:
        """What was lost since the first call, in sentences that say what to do; None: nothing."""
        first = self._first = self._first or now
        if now.cluster != first.cluster:
            return (
                f"Kafka at {self._bootstrap} is another cluster: it was {first.cluster}, and now is {now.cluster}. The former "
                f"one lost its data, or the address leads elsewhere. If the address is wrong, correct `kafka.bootstrap`. {_NEXT}"
            )
        anew = sorted(topic for topic, own in now.topics.items() if first.topics.get(topic, own) != own)
        if anew:
            return (
                f"topics were deleted and created anew on {self._bootstrap} while this worker ran: {', '.join(anew)}. Their "
                f"former records are gone. Before you create a topic anew, stop the workers. {_NEXT}"
            )
        self._missed = Counter({topic: self._missed[topic] + 1 for topic in now.missing})
        gone = sorted(topic for topic, looks in self._missed.items() if looks >= MISSING_LOOKS)
        if gone:
            return (
                f"topics are gone from {self._bootstrap}: {', '.join(gone)}. They were deleted, or the brokers lost their data. "
                f"Create them: millstream topics create PIPELINE. {_NEXT}"
            )
        return None
