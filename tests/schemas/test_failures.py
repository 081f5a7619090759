import socket
import ssl

import httpx2
import pytest

from millstream.consumers.errors import Abandoned
from millstream.inference.errors import ExecutorLost, ExecutorUnavailable, ModelRejected
from millstream.schemas.errors import (
    BadFieldError,
    BadSchemaError,
    NotWireFormat,
    SchemaAccessDenied,
    SchemaUnavailable,
    UnknownSchema,
    Unreadable,
)
from millstream.schemas.failures import Failure, failure_of


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (SchemaUnavailable("x"), "wait"),
        (SchemaAccessDenied("x"), "wait"),
        (ExecutorUnavailable("x"), "wait"),
        (ConnectionRefusedError(), "wait"),
        (TimeoutError(), "wait"),
        (socket.gaierror(-2, "Name or service not known"), "wait"),
        (ssl.SSLError("handshake"), "wait"),
        (OSError(113, "No route to host"), "wait"),
        (httpx2.ConnectError("x"), "wait"),
        (httpx2.ReadTimeout("x"), "wait"),
        (httpx2.RemoteProtocolError("x"), "wait"),
        (429, "wait"),
        (500, "wait"),
        (503, "wait"),
        (401, "wait"),
        (UnknownSchema("x"), "reject"),
        (BadSchemaError("x"), "reject"),
        (NotWireFormat("x"), "reject"),
        (Unreadable("undecodable", "x"), "reject"),
        (404, "reject"),
        (422, "reject"),
        (BadFieldError("x"), "stop"),
        (ExecutorLost("x"), "stop"),
        (FileNotFoundError(2, "No such file"), "unknown"),
        (KeyError("x"), "unknown"),
        (ModelRejected("x"), "reject"),
        (Abandoned("x"), "stop"),
    ],
    ids=repr,
)
def test_failure_is_classified(fact: BaseException | int, expected: Failure) -> None:
    assert failure_of(fact) == expected
