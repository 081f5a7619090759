"""Why a version isn't put to work."""

from typing import Literal

Reason = Literal["unavailable", "repository", "signature", "load", "warm_up"]
"""unavailable: the repository or the model's server is away. repository: there is no such version or alias, or its files are
damaged. signature: the version needs other inputs, or has other outputs. load, warm_up: the version fails then."""


class NotServed(Exception):  # noqa: N818
    """A version isn't put to work. The watch says why, and the version before it goes on."""

    def __init__(self, reason: Reason, error: str, *, transient: bool = False) -> None:
        """Args:
        reason: see `Reason`.
        error: a sentence for people.
        transient: whether it may work later, though the version doesn't change.
        """
        super().__init__(error)
        self.reason: Reason = reason
        self.transient = transient
