"""The errors of this package."""


class TopicsError(Exception):
    """Base of this package's errors; the message says what to do. The command line prints it and exits with 1."""


class BrokerUnreachableError(TopicsError):
    """No broker answers. Raised by `admin` and `lag`; the caller prints it and ends, and its supervisor tries again."""

    def __init__(self, what: str, advice: str = "") -> None:
        """Args:
        what: a sentence.
        advice: for who starts; to who runs for some time already, an outage needs no correction of a file.
        """
        super().__init__(f"{what} {advice}" if advice else what)
        self.what = what


class TopicError(TopicsError):
    """A topic is missing, or the broker refused to create it. Raised by `admin` and `lag`; the caller prints it and ends."""


class RecordTooLargeError(TopicError):
    """The topic takes no record of this size. Raised by `RecordWriter`; the caller leaves the record out, or ends."""


class GroupTakenError(TopicsError):
    """The consumer group is in use. Raised by `group` and `offsets`; the caller prints it and ends."""


class BrokerError(TopicsError):
    """Apache Kafka, or another server in Java, could not be fetched or started on this machine.

    Raised by `local`. The message ends with the last lines of the log and what to do; the caller prints it and ends.
    """
