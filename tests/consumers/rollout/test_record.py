"""The control record: bytes, what is refused, and which of several writers wins."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.rollout.record import (
    BadRolloutError,
    RolloutDecoder,
    RolloutRecord,
    RolloutVariant,
    encode_rollout,
)
from millstream.consumers.rollout.revisions import Change, StaleRevisionError, first_record, followed, next_record
from millstream.consumers.rollout.routing import FieldOverride, route
from millstream.consumers.rollout.slots import BadSharesError, SlotRange, whole
from millstream.schemas.errors import UnknownSchema
from millstream.schemas.records import OWN_SCHEMAS_FOLDER, ROLLOUT
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame

PAGE = (Path(__file__).parents[3] / "docs" / "rollout-rules.md").read_text("utf-8")
EXAMPLE = RolloutRecord(
    pipeline="flights", revision=3, replaces=2, change_id="c3", at=1_700_000_000_000, by="autopilot", action="step",
    reason="all metrics passed at 1 %", rollout="flights-2", strategy="canary", state="running",
    variants=(RolloutVariant("primary", "delay", 1), RolloutVariant("canary", "delay", 2)),
    ranges=(SlotRange(500, 1), SlotRange(9500, 0)), before_state="running", before_shares=(9900, 100),
    keys=((b"N14228", 1),), fields=(FieldOverride("origin", frozenset({"EWR"}), 0),), strategy_state='{"step": 1}',
)  # fmt: skip
CHANGE = Change("c4", 1_700_000_060_000, "ann", "rollback", "complaints")


class Store:
    """Knows our schema, and others that a test adds."""

    def __init__(self, **others: Any) -> None:
        self._known = {ROLLOUT.reserved_id: ROLLOUT.definition} | {int(key[1:]): own for key, own in others.items()}

    def by_id(self, schema_id: int) -> Schema:
        if schema_id not in self._known:
            raise UnknownSchema(f"no schema {schema_id}")
        return Schema(schema_id, "", self._known[schema_id])

    def by_name(self, name: str) -> Schema:
        raise UnknownSchema(name)

    def register(self, name: str, definition: Any) -> int:  # noqa: ARG002
        raise UnknownSchema(name)


def encoded(record: RolloutRecord) -> bytes:
    return encode_rollout(record, ROLLOUT.reserved_id)


def decode(value: bytes) -> RolloutRecord:
    return RolloutDecoder(Store()).decode(value)


def test_bytes_are_those_of_the_page() -> None:
    [block] = re.findall(r"^```hex\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert bytes.fromhex(block) == encoded(EXAMPLE)


def test_plain_avro_reads_it() -> None:
    schema = fastavro.schema.load_schema(str(OWN_SCHEMAS_FOLDER / f"{ROLLOUT.reserved_id}-{ROLLOUT.name}.avsc"))
    read = fastavro.schemaless_reader(io.BytesIO(encoded(EXAMPLE)[5:]), schema, None)
    assert isinstance(read, dict)
    assert read["ranges"] == [{"slots": 500, "variant": 1}, {"slots": 9500, "variant": 0}]
    assert read["keys"] == [{"key": b"N14228", "variant": 1}]
    assert read["at"].timestamp() == 1_700_000_000


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(
    TEXT,
    st.integers(1, 2**40),
    st.lists(st.tuples(st.binary(max_size=5), st.integers(0, 1)), max_size=3),
    st.sets(TEXT, max_size=3),
)
def test_decoding_gives_what_was_encoded(
    text: str, revision: int, keys: list[tuple[bytes, int]], values: set[str]
) -> None:
    record = replace(
        EXAMPLE, pipeline=text, reason=text, revision=revision, replaces=revision - 1, keys=tuple(keys),
        fields=(FieldOverride(text, frozenset(values), 1),),
    )  # fmt: skip
    assert decode(encoded(record)) == record


def test_record_of_a_later_schema_is_read_with_ours() -> None:
    later = {**ROLLOUT.definition, "fields": [*ROLLOUT.definition["fields"], {"name": "new", "type": "long"}]}
    value = frame(77) + encoded(EXAMPLE)[5:] + b"\x04"
    assert RolloutDecoder(Store(_77=later)).decode(value) == EXAMPLE


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "found 0 bytes"),
        (b'{"pipeline": "flights"}', "it looks like JSON"),
        (frame(5) + b"xyz", "no schema 5"),
        (encoded(EXAMPLE)[:-3], "a value takes 11 bytes, and 8 are left"),
        (encoded(EXAMPLE) + b"\0", "1 bytes are left over"),
    ],
)
def test_foreign_value_is_refused(value: bytes, said: str) -> None:
    with pytest.raises(BadRolloutError, match="expected a record of the schema rollout-v1") as refused:
        decode(value)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"variants": (), "keys": (), "fields": ()}, "expected at least one variant"),
        ({"ranges": (SlotRange(9999, 0),)}, "expected ranges of 10000 slots together, found 9999"),
        ({"ranges": (SlotRange(10_001, 0), SlotRange(-1, 1))}, "expected ranges of 10000 slots together"),
        ({"ranges": whole(2)}, r"expected variants from 0 to 1, found \[0, 1, 2\]"),
        ({"keys": ((b"", -1),)}, "expected variants from 0 to 1"),
        ({"replaces": 3}, "expected a revision above the one it replaces, found 3 after 3"),
        (
            {"revision": 2**53, "replaces": 2},
            "expected a revision above the one it replaces, found 9007199254740992 after 2",
        ),
        ({"at": 2**53}, "expected a time in ms since the epoch, found 9007199254740992"),
        ({"variants": (EXAMPLE.variants[0],) * 2}, r"expected each variant once, found \['primary', 'primary'\]"),
        ({"rollout": "a\nb"}, "expected names without control characters"),
        ({"strategy": "hope"}, "expected a strategy of canary, blue-green, ab, bandit, manual, found 'hope'"),
        ({"mode": "maybe"}, "expected the mode act or advise"),
        ({"strategy_state": "[" * 9}, "in JSON"),
    ],
)
def test_impossible_state_is_neither_written_nor_read(
    wrong: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadRolloutError, match=said) as refused:
        encoded(replace(EXAMPLE, **wrong))
    monkeypatch.setattr("millstream.consumers.rollout.record.check_record", lambda _record: None)
    written = encoded(replace(EXAMPLE, **wrong))
    monkeypatch.undo()
    with pytest.raises(BadRolloutError, match=said):
        decode(written)
    assert "rollout of flights, revision " in str(refused.value)


def test_plan_routes_as_the_record_says() -> None:
    routed = route(EXAMPLE.plan(), [b"N14228", b"a", b"b"], {"origin": ["EWR", "EWR", "JFK"]})
    assert routed.variant.tolist() == [1, 0, 0]
    assert routed.randomised.tolist() == [False, False, True]
    assert EXAMPLE.shares == (9500, 500)


def test_next_record_says_what_was_before() -> None:
    found = next_record(EXAMPLE, CHANGE, expected=3, state="rolled_back", shares=(10_000, 0))
    assert (found.revision, found.replaces, found.before_state, found.before_shares) == (4, 3, "running", (9500, 500))
    assert (found.by, found.action, found.reason, found.at) == ("ann", "rollback", "complaints", CHANGE.at)
    assert (found.state, found.shares) == ("rolled_back", (10_000, 0))
    assert found.keys == EXAMPLE.keys


def test_stale_writer_is_refused_with_what_happened() -> None:
    with pytest.raises(StaleRevisionError, match=r"expected revision 2, found 3: autopilot made the change 'step'"):
        next_record(EXAMPLE, CHANGE, expected=2)


def test_shares_above_100_percent_are_refused() -> None:
    with pytest.raises(BadSharesError):
        next_record(EXAMPLE, CHANGE, expected=3, shares=(9000, 2000))


def test_time_never_runs_backwards() -> None:
    early = replace(CHANGE, at=5)
    assert next_record(EXAMPLE, early, expected=3).at == EXAMPLE.at


def test_new_rollout_does_not_wait_for_the_time_of_a_clock_that_was_ahead() -> None:
    early = replace(CHANGE, at=5)
    assert first_record(EXAMPLE, EXAMPLE, early).at == 5
    assert first_record(EXAMPLE, None, early).at == 5


def test_new_rollout_follows_the_old_one() -> None:
    found = first_record(replace(EXAMPLE, rollout="flights-3", state="running"), EXAMPLE, CHANGE)
    assert (found.revision, found.replaces, found.before_shares, found.rollout) == (4, 3, (9500, 500), "flights-3")
    assert first_record(EXAMPLE, None, CHANGE).revision == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_of_writers_at_the_same_time_one_wins_and_all_readers_agree(turns: list[tuple[int, bool]]) -> None:
    """Three writers; each reads the topic now and then, and writes on what it has read."""
    topic = [first_record(EXAMPLE, None, Change("c", 1, "w", "start", ""))]
    seen = [topic[0]] * 3
    for number, (writer, reads) in enumerate(turns):
        if reads:
            seen[writer] = folded(topic)
        else:
            change = Change(f"{writer}-{number}", number, f"writer {writer}", "set", "")
            topic.append(next_record(seen[writer], change, expected=seen[writer].revision))
    state, counting = topic[0], [topic[0]]
    for record in topic[1:]:
        found = followed(state, record)
        assert found.record is not None
        assert found.counts == (record.replaces == state.revision)
        assert found.counts or "does not count: it replaces revision" in found.why_not
        state = found.record
        counting += [record] * found.counts
    assert [record.revision for record in counting] == list(range(1, len(counting) + 1))
    assert all(folded(topic[cut:]).change_id == state.change_id for cut in range(len(topic)) if topic[cut] in counting)


def folded(topic: list[RolloutRecord]) -> RolloutRecord:
    state = None
    for record in topic:
        state = followed(state, record).record
    assert state is not None
    return state


def test_record_that_is_read_twice_changes_nothing() -> None:
    found = followed(EXAMPLE, EXAMPLE)
    assert (found.record, found.counts, found.why_not) == (EXAMPLE, False, "")


def test_record_of_another_pipeline_is_left_out() -> None:
    found = followed(EXAMPLE, replace(EXAMPLE, pipeline="other", revision=4, replaces=3))
    assert (found.record, found.why_not) == (EXAMPLE, "expected a record of flights, found one of other")
