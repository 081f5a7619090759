"""Reads a sample of the predictions before a step, to compare its inputs with."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.evaluation.distributions import Reference
from millstream.topics.since_reader import SinceReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.schemas.arrays import Floats
    from millstream.topics.since_reader import Fetched

PLACES: Final = 12
"""Times at which events are taken, evenly over the reference's time."""
EACH: Final = 4000
"""Most events that are taken at each of them, from all partitions together."""
_PATIENCE: Final = 5.0  # seconds for one of them, if the broker is slow


def read_reference(
    client: Mapping[str, Any], topic: str, settings: StepSettings, values: Callable[[Fetched], Floats]
) -> Reference:
    """The watched fields of events before the step.

    Args:
        client: settings of a Kafka client.
        topic: of the predictions.
        settings: of the step.
        values: gives the fields of fetched predictions.

    Raises:
        BrokerUnreachableError, TopicError: the topic can't be read.
    """
    begin, length = settings.since - settings.reference, settings.reference
    found = [np.empty((0, len(settings.fields)))]
    with SinceReader(client, {topic: begin}) as reader:
        for place in range(PLACES):
            start, end = (begin + length * number // PLACES for number in (place, place + 1))
            if place:
                reader.seek({topic: start})
            found += [values(fetched) for fetched in _from(reader, start, end)]
    return Reference(np.concatenate(found))


def _from(reader: SinceReader, start: int, end: int) -> list[Fetched]:
    """The first records from a time on, the same number of each partition."""
    each = max(EACH // reader.partitions, 1)
    taken: Counter[int] = Counter()
    found, until = [], time.monotonic() + _PATIENCE
    while not reader.is_at_end and reader.read_until < end and time.monotonic() < until:
        for fetched in reader.read(EACH, 0.2).values():
            rows = []
            for row, (number, written) in enumerate(
                zip(fetched.partitions.tolist(), fetched.timestamps.tolist(), strict=True)
            ):
                if start <= written < end and taken[number] < each:
                    taken[number] += 1
                    rows.append(row)
            found.append(fetched.take(np.array(rows, np.int64)))
        if len(taken) == reader.partitions and min(taken.values()) >= each:
            break
    return found
