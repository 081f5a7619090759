"""The numbers that are kept of each event, and of each label that has no event yet."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from millstream.consumers.rollout.clusters import BUCKETS
from millstream.schemas.arrays import Ints

Rows = npt.NDArray[np.void]
"""Events or labels, with the fields below."""
NONE: Final = -1  # in place of a label's time
HASH_BITS: Final = 32 - BUCKETS.bit_length() + 1
"""Bits of a key's hash that the bucket doesn't take: they choose the keys that are sampled."""

_POSITION_BITS, _PARTITION_BITS = 44, 16

LABEL_ROW: Final = np.dtype(
    [
        ("id", np.uint64),
        ("value", np.float64),  # NaN: only a reward
        ("reward", np.float64),  # NaN: none
        ("time", np.int64),  # of the record, ms since the epoch
        ("position", np.int64),
    ]
)


def event_row(segments: int, fields: int) -> np.dtype[np.void]:
    """The fields of an event.

    Args:
        segments: fields by which events are divided.
        fields: fields whose distribution is watched.
    """
    columns: list[Any] = [
        ("id", np.uint64),  # hash of the event ID
        ("time", np.int64),  # of the prediction, ms since the epoch
        ("written", np.int64),  # of its record
        ("position", np.int64),  # see `positions`
        ("hash", np.uint32),  # of the routing key: the bucket, and whether it is sampled
        ("variant", np.int8),  # index of the one that routing assigned
        ("randomised", np.bool_),
        ("dead", np.bool_),  # a dead letter
        ("failed", np.bool_),  # another variant answered in its place
        ("nan", np.bool_),  # the score is no finite number
        ("score", np.float64),  # for classes, the index of the class; NaN: none
        ("ms", np.float64),  # time of the model call
        ("other_failed", np.bool_),  # of the shadow, where both answered
        ("other_nan", np.bool_),
        ("other_score", np.float64),
        ("other_ms", np.float64),
        ("label", np.float64),  # NaN: none
        ("reward", np.float64),  # NaN: none
        ("labelled", np.int64),  # time of the label's record; -1: none
        ("label_position", np.int64),
        ("segments", np.uint16, (segments,)),  # codes of `Segments`
        ("fields", np.float64, (fields,)),
    ]
    return np.dtype(columns)


def empty_events(dtype: np.dtype[np.void], count: int) -> Rows:
    """Events about which nothing is known yet."""
    rows = np.zeros(count, dtype)
    for name in ("score", "ms", "other_score", "other_ms", "label", "reward", "fields"):
        rows[name] = np.nan
    rows["labelled"] = NONE
    rows["randomised"] = True
    return rows


def positions(source: int, partitions: Ints, offsets: Ints) -> Ints:
    """One number for each record's place, which orders the records of a partition.

    Args:
        source: number of the topic, 0 to 7.
        partitions: of the records.
        offsets: of the records.
    """
    part = partitions & ((1 << _PARTITION_BITS) - 1)
    return (
        (source << (_POSITION_BITS + _PARTITION_BITS))
        | (part << _POSITION_BITS)
        | (offsets & ((1 << _POSITION_BITS) - 1))
    )


def is_sampled(hashes: npt.NDArray[np.uint32], level: int) -> npt.NDArray[np.bool_]:
    """Which keys are kept after the sample was halved so often. Independent of buckets and of variants."""
    kept: npt.NDArray[np.bool_] = (hashes >> np.uint32(32 - HASH_BITS)) < np.uint32(1 << max(HASH_BITS - level, 0))
    return kept


def buckets(rows: Rows) -> Ints:
    """The bucket of each event's key, as `clusters.buckets_of` gives it."""
    found: Ints = (rows["hash"] % np.uint32(BUCKETS)).astype(np.int64)
    return found
