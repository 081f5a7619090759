"""A setting of Kafka clients that connect quickly."""

QUICK_CONNECT = {
    # After a client has tried to open a connection, it tries to open the next one only after half of this time. It needs at least
    # two: the first one is closed as soon as the client knows the brokers. With the default of 100, each new client waits 50 ms.
    # While a broker is away, the time between two attempts doubles up to `reconnect.backoff.max.ms`, as with the default.
    "reconnect.backoff.ms": 20,
}
