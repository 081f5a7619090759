"""Classifies failures: wait and retry, reject the record, stop, or unknown."""

import errno
import socket
import ssl
import sys
from typing import Literal

Failure = Literal["wait", "reject", "stop", "unknown"]
"""What to do about a failure.

- wait: an outage. Retry with back-off.
- reject: this record, schema or response is at fault. A retry would fail again.
- stop: the configuration or the process is at fault. End with a message.
- unknown: not classified; the caller decides.
"""

_BUSY_STATUSES = {408, 429}  # 4xx statuses that are not about this request
_REFUSED_STATUSES = {401, 403}  # the operator may be rotating a password: records wait until it works again
_NETWORK_ERRORS = {
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EADDRNOTAVAIL,  # no local port is free
    errno.ETIMEDOUT,
}


def failure_of(fact: BaseException | int) -> Failure:
    """Classify an exception, or an HTTP status other than success.

    Millstream's error classes set the class attribute `failure`.
    """
    if isinstance(fact, int):
        return "wait" if fact >= 500 or fact in _BUSY_STATUSES | _REFUSED_STATUSES else "reject"
    stated: Failure | None = getattr(type(fact), "failure", None)
    return stated or ("wait" if _is_of_the_network(fact) else "unknown")


def _is_of_the_network(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror | socket.herror | ssl.SSLError):
        return True
    http = sys.modules.get("httpx2")  # not imported: the error can't be one of httpx2's
    if http is not None and isinstance(error, http.TransportError):
        return True
    return isinstance(error, OSError) and error.errno in _NETWORK_ERRORS
