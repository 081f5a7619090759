"""The errors of this package."""

from millstream.consumers.errors import WorkerError


class ServerMissing(WorkerError):  # noqa: N818
    """The server can't run on this machine, or could not be fetched. Raised by `environment` and `triton`.

    The message says why and what to do; the caller prints it and ends, and a test is skipped with it.
    """


class ServerFailed(WorkerError):  # noqa: N818
    """The server ended, or doesn't get ready. Raised by `process` with the end of its log; the caller prints it and ends."""


class StopRequested(Exception):  # noqa: N818
    """The caller's `stop` was set while something was fetched or started. What was begun has been ended or deleted."""
