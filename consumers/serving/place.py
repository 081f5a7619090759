"""Where the versions of one model are served."""

from typing import Protocol

from millstream.consumers.execute.interface import Pool
from millstream.consumers.serving.loaded import Loaded


class Place(Protocol):
    """Where the versions of one model are served. One thread calls it."""

    def switch_to(self, loaded: Loaded) -> None:
        """Let this version answer the batches that are submitted from now on."""

    def is_in_use(self, loaded: Loaded) -> bool:
        """Whether the version answers new batches, or has batches in flight."""
        ...


class WholePool:
    """A pool in which one model answers alone."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def switch_to(self, loaded: Loaded) -> None:
        """See Place."""
        self._pool.switch_to(loaded.opened)

    def is_in_use(self, loaded: Loaded) -> bool:
        """See Place."""
        return self._pool.is_in_use(loaded.opened)
