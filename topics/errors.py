"""What can go wrong in this package."""

from collections.abc import Sequence

from confluent_kafka import KafkaError

_NO_CAUSE = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # they follow from the cause
_ADVICE = {
    KafkaError._AUTHENTICATION: "Correct the user, the password or the mechanism under `kafka.client` in the pipeline file",
    KafkaError._SSL: "Check the certificates and `security.protocol` under `kafka.client` in the pipeline file",
    KafkaError._RESOLVE: "Correct the host's name in `kafka.bootstrap` of the pipeline file",
}


class TopicsError(Exception):
    """Base of this package's errors; the message says what to do. The command line prints it and exits with 1."""


class BrokerUnreachableError(TopicsError):
    """No broker answers. Raised by `admin` and `lag`; the caller prints it and ends, and its supervisor tries again."""


class TopicError(TopicsError):
    """A topic is missing, or the broker refused to make it. Raised by `admin` and `lag`; the caller prints it and ends."""


class GroupTakenError(TopicsError):
    """The consumer group is in use by something else. Raised by `group`; the caller prints it and ends."""


def unreachable(bootstrap: str, error: KafkaError, causes: Sequence[KafkaError] = ()) -> BrokerUnreachableError:
    """The error for a broker that does not answer: with its cause, where the client told that to its `error_cb`."""
    told = [cause for cause in causes if cause.code() not in _NO_CAUSE]
    cause = told[-1] if told else error
    said = " ".join(cause.str().split())
    advice = _ADVICE.get(
        cause.code(),
        "Start one, correct `kafka.bootstrap` in the pipeline file, or check the user and TLS settings under `kafka.client`",
    )
    return BrokerUnreachableError(f"no Kafka broker answers at {bootstrap} ({said}). {advice}.")
