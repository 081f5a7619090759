"""Errors of the demo's data."""


class DemoDataError(Exception):
    """The flights that the demo needs are not installed, or the files are damaged.

    Raised by `flights`; the caller prints the message and ends.
    """
