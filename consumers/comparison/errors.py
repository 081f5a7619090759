"""Errors of the comparison job."""

from millstream.consumers.errors import WorkerError


class ComparisonError(WorkerError):
    """The job can't start or continue; the message says what to do. The command prints it and ends. A restart loses nothing."""


class DamagedRecordError(ValueError):
    """The job didn't write this record of its own topics. `unpack` and `rows_of` raise it; the caller counts and skips it."""
