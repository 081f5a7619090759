"""Where confluent-kafka's object keeps librdkafka's, for the few functions that it does not pass on."""

import ctypes
import sys

import confluent_kafka
from confluent_kafka import Consumer, Producer


def handle_of(client: Consumer | Producer, error_cb: object) -> "ctypes.Array[ctypes.c_void_p]":
    """The handle's place, 0 of this: right behind what all objects begin with, and before `error_cb`. None there: closed.

    Args:
        client: that is to live as long as this is looked at.
        error_cb: the very object that the client was told under this name.

    Raises:
        LookupError: this build of confluent-kafka keeps it elsewhere.
    """
    if sys.implementation.name != "cpython":
        raise LookupError(f"{sys.implementation.name}: no address of an object is known")
    handle = (ctypes.c_void_p * 2).from_address(id(client) + object.__basicsize__)
    if handle[1] != id(error_cb):
        raise LookupError(f"confluent-kafka {confluent_kafka.__version__} keeps librdkafka's handle elsewhere")
    return handle
