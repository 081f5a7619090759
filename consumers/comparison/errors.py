"""What can go wrong in the comparison job."""

from millstream.consumers.errors import WorkerError


class ComparisonError(WorkerError):
    """The job can't start or go on; the message says what to do. The command prints it and ends; what it knew is restored."""


class DamagedRecordError(ValueError):
    """A record of the job's own topics is none that the job writes. Raised by `unpack`; the caller counts it and skips it."""
