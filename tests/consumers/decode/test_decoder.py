import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.event_times import TimeFormat
from millstream.consumers.events import NEVER, DecodedBatch, FetchedBatch, Rejection
from millstream.consumers.record_headers import RecordHeaders
from millstream.consumers.record_types import HeaderList, Record
from millstream.consumers.records import Records
from millstream.inference.conversions import Conversion
from millstream.inference.signature import Signature, TensorInput
from millstream.inference.times import Time
from millstream.schemas.column import Column, column_of
from millstream.schemas.decoded import Decoded
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.errors import SchemaUnavailable
from tests.consumers.in_memory import EPOCHS, SIGNATURE, MemoryRecord, NumberDecoder, partitions, polled
from tests.schemas.tables import dicts_of

ISO8601 = "a valid time in ISO 8601 with separators (years 1 to 9999), such as 2026-03-01T10:00:00Z"
FIRST, LAST = ((moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1) for moment in (datetime.min, datetime.max))
RECORD_FIELDS = EventFields(event_id=None, event_time=None)
Making = Callable[[list[float | None]], Column]


def decode(values: Sequence[bytes | None], fields: EventFields = RECORD_FIELDS, **extra: Making) -> DecodedBatch:
    decoder = BlockDecoder(NumberDecoder(extra), fields, SIGNATURE, allow_nan=False)
    return decoder.decode(polled(values, 100))


def column(*values: object, dtype: Dtype) -> Making:
    return lambda _numbers: column_of(values, dtype)


VALUES = st.sampled_from([b"1", b"2.5", b"-3", b"nan", b"inf", b"null", b"x", b"", None])


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_each_record_is_an_event_or_refused_or_a_tombstone(values: list[bytes | None]) -> None:
    block = decode(values)
    finite = {b"1": 1.0, b"2.5": 2.5, b"-3": -3.0}
    reasons = {b"x": "undecodable", b"": "undecodable", b"nan": "unfit", b"inf": "unfit", b"null": "unfit"}
    good = [row for row, value in enumerate(values) if value in finite]
    assert block.good.tolist() == good
    assert block.tensors["x"][:, 0].tolist() == [finite[values[row] or b""] for row in good]
    assert list(block.ids) == [f"in-0-{100 + row}" for row in good]
    assert [(row, why.reason) for row, why in block.rejected.items()] == [
        (row, reasons[value]) for row, value in enumerate(values) if value in reasons
    ]
    assert len(block.event_times) == len(good)


@settings(max_examples=30)
@given(st.lists(VALUES, min_size=1, max_size=20))
def test_block_keeps_every_record_whole(values: list[bytes | None]) -> None:
    block = decode(values)
    assert list(block.values) == values
    assert block.offsets.tolist() == list(range(100, 100 + len(values)))
    assert partitions(block) == [("in", 0)] * len(values)
    assert np.diff(block.ends, prepend=0).tolist() == [len(value or b"") for value in values]


class InParts(NumberDecoder):
    """Decodes values in groups, each a part of its own."""

    def __init__(self, groups: Sequence[int], extra: dict[str, Making]) -> None:
        super().__init__(extra)
        self._groups = groups

    def decode(self, values: Sequence[bytes]) -> Decoded:
        rows_of: dict[int, list[int]] = {}
        for row, group in enumerate(self._groups[: len(values)]):
            rows_of.setdefault(group, []).append(row)
        return Decoded.concat(
            [
                (np.array(rows), NumberDecoder(self._extra).decode([values[row] for row in rows]))
                for rows in rows_of.values()
            ]
        )


@given(st.lists(st.tuples(VALUES.filter(lambda value: value is not None), st.integers(0, 2)), min_size=1, max_size=20))
def test_block_of_records_that_were_read_in_several_ways_is_the_same(pairs: list[tuple[bytes, int]]) -> None:
    values, groups = zip(*pairs, strict=True)
    texts: Making = lambda numbers: column_of([f"idé{number}" for number in numbers], "string")  # noqa: E731
    times: Making = lambda numbers: column_of(  # noqa: E731
        [int(n or 0) if n == n and abs(n or 0) < 9 else 7 for n in numbers],  # noqa: PLR0124
        "int64",
    )
    extra = {"id": texts, "time": times, "size": texts}
    fields = EventFields("id", "time", cost="size")
    expected = BlockDecoder(NumberDecoder(extra), fields, SIGNATURE, allow_nan=False, keep=["number"])
    parted = BlockDecoder(InParts(groups, extra), fields, SIGNATURE, allow_nan=False, keep=["number"])
    one, several = (decoder.decode(polled(list(values), 100)) for decoder in (expected, parted))
    for name in ("good", "event_times", "costs"):
        assert getattr(several, name).tolist() == getattr(one, name).tolist()
    assert list(several.ids) == list(one.ids)
    assert several.rejected == one.rejected
    assert several.tensors["x"].tolist() == one.tensors["x"].tolist()
    assert several.features is not None
    assert one.features is not None
    assert dicts_of(several.features) == dicts_of(one.features)


@pytest.mark.parametrize(
    ("values", "dtype", "costs"),
    [
        ([3, None, 4, -5], "int64", [3, 0, 4, 0]),
        ([0.2, float("nan"), float("inf"), None], "float64", [1, 0, 1 << 40, 0]),
        ([[1, 2, 3], [], None, [None]], ListOf("int32"), [3, 0, 0, 1]),
        (["four", "", None, "ää"], "string", [4, 0, 0, 2]),
    ],
)
def test_cost_is_a_number_or_a_length(values: list[object], dtype: Dtype, costs: list[int]) -> None:
    block = decode([b"1"] * 4, EventFields(None, None, cost="size"), size=column(*values, dtype=dtype))
    assert block.costs is not None
    assert np.diff(block.costs, prepend=0).tolist() == costs


def test_costs_are_those_of_the_events_that_are_left() -> None:
    counts: Making = lambda numbers: column_of(range(1, len(numbers) + 1), "int64")  # noqa: E731
    block = decode([b"x", b"1", None, b"null", b"1"], EventFields(None, None, cost="size"), size=counts)
    assert block.costs is not None
    assert np.diff(block.costs, prepend=0).tolist() == [1, 3]


def test_refused_record_says_why() -> None:
    undecodable, unfit = decode([b"x", b"null"]).rejected.values()
    assert undecodable.error == "b'x' is no number"
    assert unfit.error == "field `number` is absent or null, but tensor `x` needs a value"


def test_block_has_the_assignment_and_times_of_its_poll() -> None:
    poll = polled([b"1"], arrived=12.5)
    block = BlockDecoder(NumberDecoder(), RECORD_FIELDS, SIGNATURE, allow_nan=False).decode(poll)
    assert block.epochs is EPOCHS
    assert (block.arrived, block.ingest_time) == (12.5, poll.ingest_time)


def test_records_of_the_only_topic_need_not_be_asked_for_it() -> None:
    records: list[Record] = [MemoryRecord(at, place=("in", number)) for at, number in enumerate([1, 0, 1])]
    decoder = BlockDecoder(NumberDecoder(), RECORD_FIELDS, SIGNATURE, allow_nan=False)
    assert partitions(decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))) == [
        ("in", 1),
        ("in", 0),
        ("in", 1),
    ]


def test_keys_headers_and_timestamps_come_along() -> None:
    records: list[Record] = [
        MemoryRecord(3, b"1", ("in", 1), (2, 55), b"key", [("trace", b"a"), ("trace", None)]),
        MemoryRecord(9, None, ("other", 0), (0, -1)),
    ]
    decoder = BlockDecoder(NumberDecoder(), RECORD_FIELDS, SIGNATURE, allow_nan=False)
    block = decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))
    assert partitions(block) == [("in", 1), ("other", 0)]
    assert list(block.keys) == [b"key", None]
    assert block.headers == {0: RecordHeaders.of([("trace", b"a"), ("trace", None)])}
    assert block.timestamps.tolist() == [55, -1]
    assert list(block.timestamp_types) == [2, 0]
    assert list(block.ids) == ["in-1-3"]


def test_records_without_headers_have_none_at_all() -> None:
    assert decode([b"1", b"2"]).headers == {}


def test_event_id_is_its_field() -> None:
    fields = EventFields("id", None)
    assert list(decode([b"1", b"2"], fields, id=column("a", "b", dtype="string")).ids) == ["a", "b"]
    assert list(decode([b"1", b"2"], fields, id=column(7, 8, dtype="int64")).ids) == ["7", "8"]


def test_event_without_its_id_is_refused_and_the_rows_of_the_others_stay_right() -> None:
    """Three kinds of refusal in one block: each counts rows after the ones before it have gone."""
    ids = column(None, "b", "c", None, "e", dtype="string")
    block = decode([None, b"1", b"x", b"2", b"nan", b"null", b"5"], EventFields("id", None), id=ids)
    assert [(row, why.reason) for row, why in block.rejected.items()] == [
        (1, "unfit"),
        (2, "undecodable"),
        (4, "unfit"),
        (5, "unfit"),
    ]
    assert next(iter(block.rejected.values())).error == "field `id`, the event id, is absent or null"
    assert (block.good.tolist(), list(block.ids)) == ([3, 6], ["b", "e"])
    assert block.tensors["x"][:, 0].tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    ("form", "dtype", "values", "expected"),
    [
        ("milliseconds", "int64", [5_000_999, 7_000_000], [5_000_999, 7_000_000]),
        ("microseconds", "int64", [5_000_999, -1], [5_000, -1]),
        ("nanoseconds", "int64", [5_000_999, 7_000_000], [5, 7]),
        ("seconds", "int64", [5, -7], [5000, -7000]),
        ("seconds", "int32", [5, -7], [5000, -7000]),
        ("seconds", "float64", [1.001, 1_714_564_800.123456], [1001, 1_714_564_800_123]),
        ("milliseconds", "float64", [1.5, -0.5], [1, -1]),
        ("milliseconds", "int64", [FIRST, LAST], [FIRST, LAST]),
        ("nanoseconds", "int64", [2**63 - 1, -1], [(2**63 - 1) // 1_000_000, -1]),
        ("iso8601", "string", ["1970-01-01T00:00:01.5Z", "1969-12-31T23:59:59.9999"], [1500, -1]),
    ],
)
def test_event_time_is_its_field_in_milliseconds(
    form: TimeFormat, dtype: str, values: list[Any], expected: list[int]
) -> None:
    times = column(*values, dtype=dtype)
    assert decode([b"1", b"2"], EventFields(None, "at", form), at=times).event_times.tolist() == expected


@pytest.mark.parametrize(
    ("form", "times", "says"),
    [
        ("milliseconds", [1_714_564_800, 1_714_564_801], ["such as 1714564800, but is read as milliseconds"]),
        ("milliseconds", [1_714_564_800_000, 1_714_564_800_000], []),
        ("milliseconds", [5_000, 0], []),
        ("seconds", [1_714_564_800, 1_714_564_801], []),
        ("microseconds", [1_714_564_800_000, 1_714_564_800_000], []),
    ],
)
def test_event_times_that_look_like_seconds_are_told_once(
    form: TimeFormat, times: list[int], says: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    extra = {"at": column(*times, dtype="int64")}
    decoder = BlockDecoder(NumberDecoder(extra), EventFields(None, "at", form), SIGNATURE, allow_nan=False)
    for _ in range(2):
        decoder.decode(polled([b"1", b"2"], 100))
    assert len(caplog.messages) == len(says)
    for text, said in zip(says, caplog.messages, strict=True):
        assert text in said


@pytest.mark.parametrize(("form", "unit"), [("milliseconds", 1), ("microseconds", 1000)])
def test_event_without_its_time_has_its_records(form: TimeFormat, unit: int) -> None:
    times = column(None, 6_000 * unit, dtype="int64")
    found = decode([b"1", b"2"], EventFields(None, "at", form), at=times).event_times.tolist()
    assert found == [1_700_000_000_000, 6_000]


@pytest.mark.parametrize(
    ("form", "dtype", "values", "error"),
    [
        ("iso8601", "string", ["1970-01-01", "soon"], f"expected {ISO8601}, found 'soon'"),
        ("iso8601", "string", ["1970-01-01", "20260301T100000Z"], f"expected {ISO8601}, found '20260301T100000Z'"),
        (
            "seconds",
            "float64",
            [86400.0, math.inf],
            "expected seconds since 1970 (years 1 to 9999), found inf",
        ),
        (
            "seconds",
            "float64",
            [86400.0, 1e300],
            "expected seconds since 1970 (years 1 to 9999), found 1e+300",
        ),
        (
            "seconds",
            "int64",
            [86400, 2**62],
            "expected seconds since 1970 (years 1 to 9999), found 4611686018427387904",
        ),
        (
            "microseconds",
            "float64",
            [86400.0, -1e30],
            "expected microseconds since 1970 (years 1 to 9999), found -1e+30",
        ),
        (
            "milliseconds",
            "int64",
            [86400, 1_714_564_800_123_456],
            "expected milliseconds since 1970 (years 1 to 9999), found 1714564800123456",
        ),
        (
            "milliseconds",
            "int64",
            [LAST, LAST + 1],
            f"expected milliseconds since 1970 (years 1 to 9999), found {LAST + 1}",
        ),
        (
            "seconds",
            "float64",
            [FIRST / 1000, 1_714_564_800_123.0],
            "expected seconds since 1970 (years 1 to 9999), found 1714564800123.0",
        ),
    ],
)
def test_event_with_another_thing_as_its_time_is_unfit(
    form: TimeFormat, dtype: str, values: list[Any], error: str
) -> None:
    times = column(*values, None, dtype=dtype)
    block = decode([b"1", b"2", b"3"], EventFields(None, "at", form), at=times)
    assert block.rejected == {1: Rejection("unfit", f"field `at`, the event time: {error}")}
    assert block.good.tolist() == [0, 2]
    assert block.event_times[1] == 1_700_000_000_000
    assert block.tensors["x"][:, 0].tolist() == [1.0, 3.0]


@pytest.mark.parametrize("fields", [RECORD_FIELDS, EventFields(None, "at", "milliseconds")])
@pytest.mark.parametrize("stamp", [LAST + 1, 2**63 - 1])
def test_timestamp_of_a_record_beyond_the_calendar_is_no_event_time(fields: EventFields, stamp: int) -> None:
    records = Records.of([MemoryRecord(row, b"1", stamp=(1, at)) for row, at in enumerate((-1, stamp, LAST))])
    decoder = BlockDecoder(
        NumberDecoder({"at": column(None, None, None, dtype="int64")}), fields, SIGNATURE, allow_nan=False
    )
    found = decoder.decode(FetchedBatch(records, EPOCHS, 0.0, 0))
    why = f"the record's timestamp, which is the event time: expected milliseconds since 1970 (years 1 to 9999), found {stamp}"
    assert found.rejected == {1: Rejection("unfit", why)}
    assert found.event_times.tolist() == [-1, LAST]


def test_age_of_a_field_is_counted_to_the_events_own_time() -> None:
    age = Conversion(Time("seconds", "age", whole=False))
    signature = Signature((TensorInput("age", ("born",), False, "float64", (1,), conversions=(age,)),), ())
    extra = {"at": column(None, 6_000, dtype="int64"), "born": column(1_699_999_999, 2, dtype="int64")}
    decoder = BlockDecoder(NumberDecoder(extra), EventFields(None, "at"), signature, allow_nan=False)
    assert decoder.decode(polled([b"1", b"2"], 100)).tensors["age"][:, 0].tolist() == [1.0, 4.0]


def test_event_times_leave_out_the_refused() -> None:
    times = column(1, 2, 3, dtype="int64")
    assert decode([b"1", b"nan", b"x", b"3"], EventFields(None, "at"), at=times).event_times.tolist() == [1, 3]


def test_nan_passes_where_the_model_takes_it() -> None:
    decoder = BlockDecoder(NumberDecoder(), RECORD_FIELDS, SIGNATURE, allow_nan=True)
    assert decoder.decode(polled([b"nan"])).rejected == {}


def test_schemas_that_are_away_leave_the_records_for_later() -> None:
    numbers = NumberDecoder()
    numbers.failures.append(SchemaUnavailable("the registry is away"))
    decoder = BlockDecoder(numbers, RECORD_FIELDS, SIGNATURE, allow_nan=False)
    poll = polled([b"1"])
    with pytest.raises(SchemaUnavailable):
        decoder.decode(poll)
    assert decoder.decode(poll).good.tolist() == [0]


def with_deadlines(*headers: HeaderList) -> DecodedBatch:
    fields = EventFields(None, None, deadline_header="until")
    records: list[Record] = [MemoryRecord(at, b"1", heads=own or None) for at, own in enumerate(headers)]
    decoder = BlockDecoder(NumberDecoder(), fields, SIGNATURE, allow_nan=False)
    return decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))


def test_deadline_is_that_of_its_header() -> None:
    block = with_deadlines([], [("until", b"1700000000000")], [("other", b"5")], [("until", b"9223372036854775808")])
    assert block.deadlines is not None
    assert block.deadlines.tolist() == [NEVER, 1_700_000_000_000, NEVER, NEVER]
    assert block.invalid_deadlines == 0


@pytest.mark.parametrize(
    "stated", [b"9" * 5000, b"0" * 5000, b"-1", b"1.5", b"soon", b"", "\u0661".encode(), b"\xb2", b" 1"]
)
def test_deadline_header_that_is_no_time_sets_none_and_is_counted(stated: bytes) -> None:
    block = with_deadlines([("until", b"7")], [("until", stated)], [("until", stated), ("until", b"8")])
    assert block.deadlines is not None
    assert block.deadlines.tolist() == [7, NEVER, 8]
    assert block.invalid_deadlines == 1


@given(st.integers(FIRST, LAST), st.integers(1, 10**12) | st.integers(1, NEVER))
def test_event_is_too_old_after_its_time_and_age_and_never_before(at: int, max_age: int) -> None:
    fields = EventFields(None, "at", max_age=max_age)
    block = decode([b"1"], fields, at=column(at, dtype="int64"))
    assert block.deadlines is not None
    assert block.deadlines.tolist() == [min(at + max_age, NEVER)]
