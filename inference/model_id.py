"""The identity of a model version."""

from typing import NamedTuple


class ModelId(NamedTuple):
    """A model version's name and number, as predictions state them."""

    name: str
    version: int

    def __str__(self) -> str:
        """For messages."""
        return f"{self.name} version {self.version}"
