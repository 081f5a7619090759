"""Formats many partitions for a log line, as ranges."""

from collections.abc import Iterable
from itertools import groupby

from millstream.consumers.record_types import Partition


def ranges_of(partitions: Iterable[Partition]) -> str:
    """Sorted partitions, consecutive ones as a range: `events/0-999, labels/3`; `nothing` if there are none."""
    ordered = sorted(set(partitions))
    # In a run of consecutive partitions, number minus index is constant.
    runs = groupby(enumerate(ordered), lambda placed: (placed[1][0], placed[1][1] - placed[0]))
    names: list[str] = []
    for (topic, _), run in runs:
        numbers = [number for _, (_, number) in run]
        names.append(f"{topic}/{numbers[0]}" if len(numbers) == 1 else f"{topic}/{numbers[0]}-{numbers[-1]}")
    return ", ".join(names) or "nothing"
