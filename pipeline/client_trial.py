"""Tries the Kafka client's properties in a pipeline file before anything needs them: a client is made, and connects nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.pipeline.pipeline import Pipeline

# What a worker or a replay that never returns has open hides all that follows it for so long (Kafka Streams' default too).
TRANSACTION_TIMEOUT_MS = 10_000  # ms
_CLASSIC_PROTOCOL = {
    "partition.assignment.strategy": "cooperative-sticky",
    # Short, so that a crashed worker's partitions move in seconds.
    "session.timeout.ms": "6000",
    # The others learn of a rebalance at their next heartbeat: that long nobody reads the partitions that move.
    "heartbeat.interval.ms": "250",
}
# The broker assigns and times out (KIP-848); the client refuses to hear of these settings then.
_CONSUMER_PROTOCOL = {"group.protocol": "consumer"}
# Made for it, a client would fetch its first token at once, and wait for it when it is closed.
_FETCHES_TOKEN = ("sasl.oauthbearer.method", "oidc")


def membership(pipeline: Pipeline) -> dict[str, str]:
    """How a worker's consumer is a member of its group, where `kafka.client` says nothing else."""
    return _CONSUMER_PROTOCOL if pipeline.membership.protocol == "consumer" else _CLASSIC_PROTOCOL


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


def _blamed(client: Mapping[str, str], said: str, pipeline: Pipeline) -> str | None:
    """The property without which this is not said. Several may be: then one that it tells of."""
    told_first = sorted(client, key=lambda name: name not in said and client[name] not in said)
    return next((name for name in told_first if _refusal(_without(client, name), pipeline) != said), None)


def _without(client: Mapping[str, str], left_out: str) -> dict[str, str]:
    return {name: value for name, value in client.items() if name != left_out}


def _refusal(client: Mapping[str, str], pipeline: Pipeline) -> str | None:
    """What librdkafka says against these properties beside those that a worker sets; None: nothing."""
    tried = {name: value for name, value in client.items() if (name, value.lower()) != _FETCHES_TOKEN}
    producing: dict[str, Any] = {"enable.idempotence": True}
    if pipeline.delivery == "exactly_once":
        producing |= {"transactional.id": "trial", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    quiet = {"log_level": 0}  # whatever `debug` says
    try:
        Consumer({**membership(pipeline), **tried, "group.id": "trial", **quiet}).close()
        Producer({**tried, **producing, **quiet}).close()
    except KafkaException as error:
        said = " ".join(error.args[0].str().split())
        return said.removeprefix("Failed to create consumer: ").removeprefix("Failed to create producer: ")
    return None
