"""What can go wrong with the demo's data."""


class DemoDataError(Exception):
    """The flights that the demo streams are not installed, or not what they should be.

    Raised by `flights`; the caller prints the message and ends.
    """
