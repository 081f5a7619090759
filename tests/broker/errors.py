"""What can go wrong while a server for the tests is made ready."""


class BrokerError(RuntimeError):
    """No broker, or no schema registry beside it, could be made ready.

    Raised by `fetch`, `MavenKafka` and `Apicurio`. The message ends with the last lines of the log and what to do;
    the caller lets it pass, so that the tests stop with it.
    """
