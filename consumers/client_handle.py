"""Finds librdkafka's handle in confluent-kafka's objects, to call functions that confluent-kafka does not offer.

docs/native.md says what this relies on, why it is safe, and how to add a version to `TESTED_VERSIONS`.
"""

import ctypes
import logging
import sys
import sysconfig

import confluent_kafka
from confluent_kafka import Consumer, Producer

from millstream.schemas.native import VARIABLE, Native, native

log = logging.getLogger(__name__)

IMPLEMENTATION = "cpython"
TESTED_VERSIONS = {
    "2.13.0": "2.13.0",
    "2.13.2": "2.13.2",
    "2.14.0": "2.14.0",
    "2.14.2": "2.14.2",
    "2.15.0": "2.15.0",
    "2.15.1": "2.15.1",
    "2.16.0": "2.16.0",
    "2.16.1": "2.16.0",
}
"""Versions of confluent-kafka with which the tests have passed -> librdkafka's version in its wheel."""


def handle_of(client: Consumer | Producer, error_cb: object) -> "ctypes.Array[ctypes.c_void_p]":
    """Return an array whose first item is the handle; None in this item: the client is closed.

    In memory, the handle lies directly behind the header of the Python object, and before `error_cb`.

    Args:
        client: must live as long as the array is used.
        error_cb: the same object that the client has as its `error_cb`.

    Raises:
        LookupError: native parts are not used (see `refusal`), or this build of confluent-kafka has another memory layout.
    """
    if (reason := refusal()) is not None:
        raise LookupError(reason)
    handle = (ctypes.c_void_p * 2).from_address(id(client) + object.__basicsize__)
    if handle[1] != id(error_cb):
        raise LookupError(f"confluent-kafka {confluent_kafka.__version__} keeps librdkafka's handle elsewhere")
    return handle


def refusal() -> str | None:
    """Why this process doesn't use native parts for Kafka; None: it uses them."""
    if native() is Native.OFF:
        return f"{VARIABLE}={Native.OFF}"
    if sys.implementation.name != IMPLEMENTATION:
        return f"Python is {sys.implementation.name}; Millstream's native Kafka code knows {IMPLEMENTATION} only"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "Python is a free-threaded build; Millstream's native Kafka code was tested with the usual build only"
    if native() is Native.TRY or _is_known():
        return None
    return (
        f"Millstream's native Kafka code was not tested with {_version()}, only with {', '.join(TESTED_VERSIONS)}. To try it all "
        f"the same, set {VARIABLE}={Native.TRY} (`millstream docs native`)"
    )


def report_native() -> None:
    """Log whether native parts are not used, or used without tests. A worker calls it once, at its start."""
    if (reason := refusal()) is not None:
        # Not a warning if the user has turned them off.
        level = logging.INFO if native() is Native.OFF else logging.WARNING
        log.log(level, "records are read and written one by one: the same results for more CPU. %s.", reason)
    elif not _is_known():
        log.warning("%s=%s: the native Kafka code runs with %s, untested", VARIABLE, native(), _version())


def _is_known() -> bool:
    return TESTED_VERSIONS.get(str(confluent_kafka.__version__)) == _librdkafka()


def _version() -> str:
    return f"confluent-kafka {confluent_kafka.__version__} with librdkafka {_librdkafka()}"


def _librdkafka() -> str:
    return str(confluent_kafka.libversion()[0])
