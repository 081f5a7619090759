"""Outage or bad input: the one place that decides what becomes of a failure."""

import errno
import socket
import ssl
import sys
from typing import Literal

Failure = Literal["wait", "reject", "stop", "unknown"]
"""What to do about a failure.

- wait: something is away (an outage). Try again with back-off.
- reject: this record, schema or answer is at fault. Trying again gives the same.
- stop: the configuration or the process is at fault. End with a message.
- unknown: nothing is known about it.
"""

_TOO_BUSY = {408, 429}  # of the HTTP statuses 4xx these say nothing about what was asked for
_REFUSED = {401, 403}  # a rotated password is the operator's to replace: the records wait for it
_NETWORK = {
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EADDRNOTAVAIL,  # no local port is free
    errno.ETIMEDOUT,
}


def failure_of(fact: BaseException | int) -> Failure:
    """Classify an exception, or an HTTP status other than success.

    Error classes of ours say it themselves, by a class attribute `failure`.
    """
    if isinstance(fact, int):
        return "wait" if fact >= 500 or fact in _TOO_BUSY | _REFUSED else "reject"
    stated: Failure | None = getattr(type(fact), "failure", None)
    return stated or ("wait" if _is_of_the_network(fact) else "unknown")


def _is_of_the_network(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror | socket.herror | ssl.SSLError):
        return True
    http = sys.modules.get("httpx2")  # where it was never imported, no error is its
    if http is not None and isinstance(error, http.TransportError):
        return True
    return isinstance(error, OSError) and error.errno in _NETWORK
