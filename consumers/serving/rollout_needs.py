"""Which versions a worker needs for a revision of a rollout. Pure."""

from collections.abc import Collection
from typing import Final

from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.record import RolloutRecord


def needed(record: RolloutRecord) -> list[int]:
    """The indices of the variants to load: all until the rollout has ended, and then those that may get events."""
    if not _ended(record):
        return list(range(len(record.variants)))
    named = {variant for _, variant in record.keys} | {override.variant for override in record.fields}
    return [at for at, share in enumerate(record.shares) if share or at in named]


def preferred(record: RolloutRecord) -> int:
    """The index of the variant that answers if another can't: the baseline, or what took its place when the rollout ended."""
    if not _ended(record):
        return 0
    shares = record.shares
    return shares.index(max(shares))


def fallback(record: RolloutRecord, loaded: Collection[int]) -> int | None:
    """As `preferred`, among the variants that are loaded: otherwise the one with the largest share. None: none is loaded."""
    first = preferred(record)
    if first in loaded:
        return first
    return max(loaded, key=lambda at: record.shares[at], default=None)


def _ended(record: RolloutRecord) -> bool:
    return record.state in ENDED


NO_ROLLOUT: Final = 0
"""The revision that metrics show while there is no rollout."""
