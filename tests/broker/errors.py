"""What can go wrong while a test broker is made ready."""


class BrokerError(RuntimeError):
    """No broker could be made ready.

    Raised by `kafka_jars` and `MavenKafka`. The message ends with the last lines of the log and what to do;
    the caller lets it pass, so that the tests stop with it.
    """
