"""Which versions a worker needs for a revision of a rollout. Pure."""

from collections.abc import Collection
from typing import Final

from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.record import RolloutRecord


def needed(record: RolloutRecord) -> list[int]:
    """The indices of the variants to load: all until the rollout has ended, and then those that may get events."""
    if record.state not in ENDED:
        return list(range(len(record.variants)))
    named = {variant for _, variant in record.keys} | {override.variant for override in record.fields}
    return [at for at, share in enumerate(record.shares) if share or at in named]


def fallback(record: RolloutRecord, loaded: Collection[int]) -> int | None:
    """The index of the variant that answers if another can't: the baseline, or else the loaded one with the largest share.

    None: none is loaded.
    """
    if record.baseline in loaded:
        return record.baseline
    return max(loaded, key=lambda at: record.shares[at], default=None)


NO_ROLLOUT: Final = 0
"""The revision that metrics show while there is no rollout."""
