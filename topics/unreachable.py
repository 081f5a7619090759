"""The error for a broker that does not answer. `errors` must not import the Kafka client, because `--help` loads it."""

from collections.abc import Sequence

from confluent_kafka import KafkaError

from millstream.topics.errors import BrokerUnreachableError

_CONSEQUENT_ERRORS = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # they follow from another error
_ADVICE = {
    KafkaError._AUTHENTICATION: "Correct the user, the password or the mechanism under `kafka.client` in the pipeline file",
    KafkaError._SSL: "Check the certificates and `security.protocol` under `kafka.client` in the pipeline file",
    KafkaError._RESOLVE: "Correct the host's name in `kafka.bootstrap` of the pipeline file",
}


def unreachable(bootstrap: str, error: KafkaError, causes: Sequence[KafkaError] = ()) -> BrokerUnreachableError:
    """The error for a broker that does not answer: with its cause, if the client has reported one to its `error_cb`."""
    told = [cause for cause in causes if cause.code() not in _CONSEQUENT_ERRORS]
    cause = told[-1] if told else error
    said = " ".join(cause.str().split())
    advice = _ADVICE.get(
        cause.code(),
        "Start one (`millstream broker`), correct `kafka.bootstrap` in the pipeline file, or check the user and TLS settings "
        "under `kafka.client`",
    )
    return BrokerUnreachableError(f"no Kafka broker answers at {bootstrap} ({said}). {advice}.")
