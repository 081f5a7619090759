"""The error for a broker that does not answer. `errors` must not import the Kafka client, because `--help` loads it."""

import socket
from collections.abc import Iterator, Sequence

from confluent_kafka import KafkaError

from millstream.topics.errors import BrokerUnreachableError

_CONSEQUENT_ERRORS = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # they follow from another error
LEADERLESS_ERRORS = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
"""Errors of a partition that was just created, or whose leader changes."""
_CONNECT_TIMEOUT = 1.0  # seconds
_DEFAULT_PORT = "9092"  # the client's, too
_ADVICE = {
    KafkaError._AUTHENTICATION: "Correct the user, the password or the mechanism under `kafka.client` in the pipeline file",
    KafkaError._SSL: "Check the certificates and `security.protocol` under `kafka.client` in the pipeline file",
    KafkaError._RESOLVE: "Correct the host's name in `kafka.bootstrap` of the pipeline file, or in the environment variable that "
    "it takes",
}


def unreachable(bootstrap: str, error: KafkaError, causes: Sequence[KafkaError] = ()) -> BrokerUnreachableError:
    """The error for a broker that does not answer: with its cause, if the client has reported one to its `error_cb`.

    It may block for a second per address, see `_refuses`.
    """
    cause = _first_cause(error, causes)
    if cause.code() == KafkaError._RESOLVE or are_unknown(bootstrap):
        told = _ADVICE[KafkaError._RESOLVE]
        return BrokerUnreachableError(f"the host's name is not known: {bootstrap} ({_said(cause)}).", f"{told}.")
    if cause.code() in LEADERLESS_ERRORS:
        return BrokerUnreachableError(
            f"a partition at {bootstrap} has no leader now ({_said(cause)}). Look whether all brokers run, and try again."
        )
    advice = _ADVICE.get(cause.code()) or _advice_on(bootstrap)
    return BrokerUnreachableError(f"no Kafka broker answers at {bootstrap} ({_said(cause)}).", f"{advice}.")


def _advice_on(bootstrap: str) -> str:
    """What to do where the client's error doesn't say more than that the connection failed."""
    if all(_refuses(host, port) for host, port in _addresses(bootstrap)):
        return (
            "Nothing listens there. Start a broker (`millstream broker`), or correct `kafka.bootstrap` in the pipeline file, or "
            "the environment variable that it takes"
        )
    return (
        "Start one (`millstream broker`), correct `kafka.bootstrap` in the pipeline file, or check the user and TLS settings "
        "under `kafka.client`"
    )


def _refuses(host: str, port: str) -> bool:
    """Whether nothing listens there. Not all clients report a refused connection, so this tries to open one."""
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT, all_errors=True).close()
    except ExceptionGroup as tried:  # one error for each address of the host
        kinds = {type(error) for error in tried.exceptions}
        return ConnectionRefusedError in kinds and TimeoutError not in kinds  # a firewall lets a connection time out
    except (OSError, OverflowError, UnicodeError):  # the name has no address, or the port is no port
        return False
    return False


def are_unknown(bootstrap: str) -> bool:
    """Whether no host has an address. A client that isn't asked for its reports says only that no broker answers."""
    for host, _ in _addresses(bootstrap):
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            continue
        return False
    return True


def _addresses(bootstrap: str) -> Iterator[tuple[str, str]]:
    """Host and port of each broker."""
    for address in bootstrap.split(","):
        own = address.strip().rpartition("://")[2]
        host, colon, port = own.rpartition(":")
        has_port = colon and not own.endswith("]")
        yield (host if has_port else own).strip("[]"), port if has_port else _DEFAULT_PORT


def cause_of(error: KafkaError, causes: Sequence[KafkaError]) -> str:
    """The client's own words for why no broker answers."""
    return _said(_first_cause(error, causes))


def _first_cause(error: KafkaError, causes: Sequence[KafkaError]) -> KafkaError:
    told = [cause for cause in causes if cause.code() not in _CONSEQUENT_ERRORS]
    return told[-1] if told else error


def _said(cause: KafkaError) -> str:
    return " ".join(cause.str().split())
