"""One of several processes at a time has its turn: the one that the consumer group gives the partition of a topic to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaError

from millstream.topics.client_log import client_log
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.records import TRANSIENT_ERRORS
from millstream.topics.unreachable import LEADERLESS_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

_STUCK_MS: Final = 120_000
"""Without a call of `poll` for this time, the process counts as stuck, and another one gets the turn."""
_PASSING: Final = TRANSIENT_ERRORS | LEADERLESS_ERRORS


class Turn:
    """A member of the group. For one thread. If a process dies, another one has its turn after the session timeout.

    For a moment, two may believe that they have it: one that was frozen, and the next one.
    """

    def __init__(self, client: Mapping[str, Any], group: str, topic: str, membership: Mapping[str, str]) -> None:
        """Join the group.

        Args:
            client: settings of a Kafka client.
            group: the consumer group; only such processes may be in it.
            topic: the topic, whose partition 0 stands for the turn. Its records are not used.
            membership: the settings of the group's protocol, unless `client` has them.
        """
        self._has = False
        self._error = ""
        self._consumer = Consumer(
            {
                **QUICK_CONNECT,
                **membership,
                "max.poll.interval.ms": _STUCK_MS,
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
            },
            logger=client_log("turn"),
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    @property
    def is_ours(self) -> bool:
        """Whether it is this process's turn."""
        return self._has

    @property
    def error(self) -> str:
        """Why this process can't be in the group, in the broker's words; empty: it is, or the broker is away."""
        return self._error

    def poll(self, timeout: float) -> None:
        """Keep the membership, for up to `timeout` seconds; it returns sooner if a record came. Call it again and again."""
        message = self._consumer.poll(timeout)
        if message is None:
            return
        error = message.error()
        self._error = "" if error is None or error.code() in _PASSING | {KafkaError._PARTITION_EOF} else error.str()

    def close(self) -> None:
        """Leave the group, so that another one has its turn at once."""
        self._has = False
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_assign(self, _: object, partitions: list[Any]) -> None:
        self._has |= any(place.partition == 0 for place in partitions)

    def _on_revoke(self, _: object, partitions: list[Any]) -> None:
        self._has &= all(place.partition != 0 for place in partitions)
