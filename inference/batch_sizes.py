"""Batch-size buckets: the few batch sizes that an executor runs, and is warmed up for."""

from collections.abc import Sequence


def batch_sizes_of(configured: Sequence[int] | None, max_events: int) -> tuple[int, ...]:
    """The configured sizes, ascending, up to the first one that holds `max_events`; without any, the default sizes."""
    if not configured:
        return default_batch_sizes(max_events)
    return tuple(size for place, size in enumerate(configured) if not place or configured[place - 1] < max_events)


def default_batch_sizes(max_events: int) -> tuple[int, ...]:
    """Powers of two up to `max_events`, and `max_events` itself: padding at most doubles a micro-batch."""
    sizes = [1]
    while sizes[-1] * 2 < max_events:
        sizes.append(sizes[-1] * 2)
    return tuple(dict.fromkeys([*sizes, max_events]))


def bucket_of(events: int, sizes: Sequence[int]) -> int:
    """The smallest bucket that holds `events`; `sizes` is ascending.

    Raises:
        ValueError: there are more events than the largest bucket holds. The batcher's limit prevents that.
    """
    for size in sizes:
        if size >= events:
            return size
    raise ValueError(f"{events} events are more than the largest batch size, {sizes[-1]}")
