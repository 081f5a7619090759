"""Checks a pipeline file's Kafka properties: it creates clients with them, and closes these before they connect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.pipeline.pipeline import Pipeline

# If a worker or a replay dies, its open transaction hides all later records for this time (also Kafka Streams' default).
TRANSACTION_TIMEOUT_MS = 10_000  # ms
LONGEST_TRANSACTION_MS = TRANSACTION_TIMEOUT_MS // 2  # before its commit begins, which needs time, too
_CLASSIC_PROTOCOL = {
    "partition.assignment.strategy": "cooperative-sticky",
    # Short, so that a crashed worker's partitions move in seconds.
    "session.timeout.ms": "6000",
    # Members learn of a rebalance at their next heartbeat. Until then, nobody reads the partitions that move.
    "heartbeat.interval.ms": "250",
}
# The broker itself assigns partitions and sets the timeouts (KIP-848). The client then refuses the settings above.
_CONSUMER_PROTOCOL = {"group.protocol": "consumer"}
_LONGEST_MS = 86_400_000  # the longest `max.poll.interval.ms` that the client accepts
_REJOIN_MS = (
    45_000  # what a member may take to join a rebalance, besides its drain; also the client's default session timeout
)
_BEGINS_AS_NUMBER = re.compile(r"\s*[+-]?\d")
_NUMBER = re.compile(r"\s*[+-]?(0x[\da-fA-F]+|\d+(\.\d+)?)\s*")
_INVALID = "Invalid value for configuration property"  # librdkafka's words
# With this property, a client fetches its first token at once, and its `close` waits for the token.
_FETCHES_TOKEN = ("sasl.oauthbearer.method", "oidc")


def membership(pipeline: Pipeline) -> dict[str, str]:
    """The group settings of a worker's consumer, unless `kafka.client` sets them."""
    protocol = _CONSUMER_PROTOCOL if pipeline.membership.protocol == "consumer" else _CLASSIC_PROTOCOL
    return {**protocol, "max.poll.interval.ms": str(_rebalance_timeout(pipeline))}


def _rebalance_timeout(pipeline: Pipeline) -> int:
    """How long a rebalance waits for a member, in milliseconds.

    The client's default of 300 s is made for loops that don't poll while they process. A worker always polls, or drains. So a
    shorter time is safe. It matters where members die while they join: the broker may then make the others wait for all of it.
    """
    session = pipeline.client_config().get("session.timeout.ms", 0)
    waits = min(round(pipeline.limits.drain_timeout * 1000) + _REJOIN_MS, _LONGEST_MS)
    # The client refuses a poll interval below the session timeout. It also reports a session timeout that is no number.
    return max(waits, int(session)) if str(session).isdecimal() else waits


def client_refusals(pipeline: Pipeline) -> Iterator[tuple[str | None, str]]:
    """Yield each property of `kafka.client` that librdkafka refuses, with its message. None: it refuses the combination.

    Check `unsafe_values` first: this creates a client with the values.
    """
    client = {name: value.get_secret_value() for name, value in pipeline.kafka.client.items()}
    while (said := _refusal(client, pipeline)) is not None:
        blamed = _blamed(client, said, pipeline)
        yield blamed, said
        if blamed is None:
            return
        client = _without(client, blamed)


def numbers_with_units(client: Mapping[str, str]) -> Iterator[str]:
    """Yield each property that takes a number, and has more than that: librdkafka ignores what follows, and takes 6s as 6 ms."""
    for name, value in client.items():
        is_more = _BEGINS_AS_NUMBER.match(value) and not _NUMBER.fullmatch(value)
        if is_more and _INVALID in (_refused({name: "x"}) or ""):
            yield name


def _blamed(client: Mapping[str, str], said: str, pipeline: Pipeline) -> str | None:
    """The property that causes this message: without it, the message changes. The message's own names are tried first."""
    told_first = sorted(client, key=lambda name: name not in said and client[name] not in said)
    return next((name for name in told_first if _refusal(_without(client, name), pipeline) != said), None)


def _without(client: Mapping[str, str], left_out: str) -> dict[str, str]:
    return {name: value for name, value in client.items() if name != left_out}


def _refusal(client: Mapping[str, str], pipeline: Pipeline) -> str | None:
    """librdkafka's message if it refuses these properties together with a worker's own; None: it accepts them."""
    tried = {name: value for name, value in client.items() if (name, value.lower()) != _FETCHES_TOKEN}
    # The shortest that any of our producers sets: `linger.ms` must be below it.
    producing: dict[str, Any] = {"enable.idempotence": True, "message.timeout.ms": TRANSACTION_TIMEOUT_MS}
    if pipeline.delivery == "exactly_once":
        producing |= {"transactional.id": "trial", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return _refused({**membership(pipeline), **tried}, {**tried, **producing})


def _refused(consuming: Mapping[str, Any], producing: Mapping[str, Any] | None = None) -> str | None:
    """librdkafka's message if it refuses to create a consumer, or a producer, with these properties; None: it doesn't."""
    quiet = {"log_level": 0}  # even if `debug` is set
    try:
        Consumer({**consuming, "group.id": "trial", **quiet}).close()
        if producing is not None:
            Producer({**producing, **quiet}).close()
    except KafkaException as error:
        said = " ".join(error.args[0].str().split())
        return said.removeprefix("Failed to create consumer: ").removeprefix("Failed to create producer: ")
    return None
