"""Types for the parts of a Kafka record."""

from typing import Protocol

Partition = tuple[str, int]
"""Topic and partition number."""

Position = tuple[str, int, int]
"""A record's topic, partition number and offset."""

Key = bytes | None
"""A record's key."""

HeaderList = list[tuple[str, bytes | None]]
"""A record's headers as the client takes and gives them; a name may occur several times."""


class Record(Protocol):
    """A single Kafka record, as the client delivers it without native parts."""

    def __len__(self) -> int:
        """Bytes of the value."""
        ...

    def topic(self) -> str: ...  # noqa: D102
    def partition(self) -> int: ...  # noqa: D102
    def offset(self) -> int: ...  # noqa: D102
    def key(self) -> bytes | None: ...  # noqa: D102
    def value(self) -> bytes | None: ...  # noqa: D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102
    def headers(self) -> HeaderList | None: ...  # noqa: D102
