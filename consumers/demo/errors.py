"""Errors of the demo's data."""


class DemoDataError(Exception):
    """The flights or a package that the demo needs are not installed, or the files are damaged.

    Raised by `flights` and `served`; the caller prints the message and ends.
    """
