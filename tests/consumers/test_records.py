"""Columns of records say what the records said, however they were taken apart and put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers import records as records_module
from millstream.consumers.record_headers import RecordHeaders
from millstream.consumers.records import NONE, Records, rows_in
from millstream.schemas.packed import Packed
from tests.consumers.in_memory import MemoryRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.record_types import Record

BYTES = st.none() | st.binary(max_size=3)
HEADERS = st.none() | st.lists(st.tuples(st.sampled_from(["a", "b"]), BYTES), max_size=2)
RECORDS = st.lists(
    st.builds(
        MemoryRecord,
        at=st.integers(0, 2**63 - 1),
        content=BYTES,
        place=st.tuples(st.sampled_from(["in", "other"]), st.integers(0, 2)),
        stamp=st.tuples(st.integers(0, 2), st.integers(-1, 2**63 - 1)),
        name=BYTES,
        heads=HEADERS,
    ),
    max_size=6,
)


def said(record: Record) -> tuple[Any, ...]:
    place, (kind, stamp) = (record.topic(), record.partition()), record.timestamp()
    return place, record.offset(), kind, stamp, record.key(), record.value(), record.headers() or None


def rows(records: Records) -> list[tuple[Any, ...]]:
    """The same of columns."""
    return list(
        zip(
            [records.partitions[place] for place in records.places.tolist()],
            records.offsets.tolist(),
            records.timestamp_types.tolist(),
            records.timestamps.tolist(),
            records.keys,
            records.values,
            [list(records.headers[row]) if row in records.headers else None for row in range(len(records))],
            strict=True,
        )
    )


def size_of(record: Record) -> int:
    headers = sum(8 + len(name) + len(value or b"") for name, value in record.headers() or ())
    return len(record.key() or b"") + len(record.value() or b"") + headers


@given(RECORDS)
def test_they_say_what_each_record_said(one_by_one: Sequence[Record]) -> None:
    records = Records.of(one_by_one)
    assert rows(records) == [said(record) for record in one_by_one]
    assert len(records) == len(one_by_one)
    assert records.sizes.tolist() == [size_of(record) for record in one_by_one]
    assert records.bytes == sum(map(size_of, one_by_one))
    assert isinstance(records.values, Packed) or not one_by_one or None in records.values


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_end_to_end_they_are_the_records_of_all(parts: list[Sequence[Record]]) -> None:
    together = Records.concat([Records.of(part) for part in parts])
    assert rows(together) == [said(record) for part in parts for record in part]


@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_values_that_are_not_copied_are_the_same(parts: list[Sequence[Record]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_module, "CHAINED_BYTES", 0)
        together = Records.concat([Records.of(part) for part in parts])
    assert rows(together) == [said(record) for part in parts for record in part]


@given(RECORDS, st.data())
def test_those_that_are_chosen(one_by_one: Sequence[Record], data: st.DataObject) -> None:
    records = Records.of(one_by_one)
    chosen = [data.draw(st.booleans()) for _ in one_by_one]
    taken = records.take(np.array(chosen, np.bool_))
    assert rows(taken) == [said(record) for record, wanted in zip(one_by_one, chosen, strict=True) if wanted]
    assert set(taken.partitions) == {place for place, *_ in rows(taken)}
    of_topic = records.where(lambda partition: partition[0] == "in")
    assert rows(of_topic) == [said(record) for record in one_by_one if record.topic() == "in"]


@given(RECORDS)
def test_by_partition(one_by_one: Sequence[Record]) -> None:
    records = Records.of(one_by_one)
    by_partition: dict[tuple[str, int], list[int]] = {}
    for record in one_by_one:
        by_partition.setdefault((record.topic(), record.partition()), []).append(record.offset())
    assert records.counts() == {partition: len(offsets) for partition, offsets in by_partition.items()}
    assert records.firsts() == {partition: offsets[0] for partition, offsets in by_partition.items()}


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_rows_that_have_headers(with_headers: set[int], rows: set[int]) -> None:
    headers = {row: RecordHeaders.of([("a", b"")]) for row in sorted(with_headers)}
    wanted = sorted(rows)
    found = rows_in(headers, np.array(wanted, np.int64))
    assert [wanted[place] for place in found.tolist()] == sorted(with_headers & rows)


def test_none_are_none() -> None:
    assert not NONE
    assert (NONE.bytes, NONE.counts(), NONE.firsts()) == (0, {}, {})
    assert not Records.concat([NONE, NONE])
