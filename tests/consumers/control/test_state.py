from dataclasses import replace

import pytest

from millstream.consumers.control.state import ControlState
from millstream.consumers.rollout.record import RolloutRecord, encode_rollout
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.records import ROLLOUT
from tests.consumers.control.topic_in_memory import PIPELINE, Topic, TopicReader, decode, shifted, started

KEY = PIPELINE.encode()


def value(record: RolloutRecord) -> bytes:
    return encode_rollout(record, ROLLOUT.reserved_id)


def test_newest_record_is_the_state() -> None:
    state, first = ControlState(PIPELINE), started()
    second = shifted(first, "c2")
    for offset, record in enumerate((first, second)):
        seen = state.see(offset, KEY, value(record), decode)
        assert seen is not None
        assert seen.counts
    assert state.record == second
    assert not state.problem


def test_records_of_other_pipelines_are_none_of_ours() -> None:
    state = ControlState(PIPELINE)
    assert state.see(0, b"other", b"whatever", decode) is None
    assert state.see(1, None, b"whatever", decode) is None
    assert not state.unknown


@pytest.mark.parametrize(
    "foreign", [b"", b"hello", b"\0\0\0\0\x63body", value(started())[:-5], value(started()) + b"!"]
)
def test_foreign_record_leaves_the_state(foreign: bytes) -> None:
    state, first = ControlState(PIPELINE), started()
    state.see(0, KEY, value(first), decode)
    seen = state.see(1, KEY, foreign, decode)
    assert seen is not None
    assert not seen.counts
    assert "the record at offset 1 can't be read: expected a record of the schema rollout-v1" in seen.problem
    assert (state.record, state.problem, state.unknown) == (first, seen.problem, False)
    state.see(2, KEY, value(shifted(first, "c2")), decode)
    assert not state.problem


def test_state_is_unknown_if_only_a_foreign_record_is_left() -> None:
    state = ControlState(PIPELINE)
    state.see(7, KEY, b"hello", decode)
    assert state.unknown


def test_record_about_another_pipeline_is_foreign() -> None:
    state = ControlState(PIPELINE)
    seen = state.see(0, KEY, value(replace(started(), pipeline="other")), decode)
    assert seen is not None
    assert seen.problem.endswith("expected a record of flights, found one of other")


def test_losers_record_does_not_count() -> None:
    state, first = ControlState(PIPELINE), started()
    winner, loser = shifted(first, "c2", by="alice"), shifted(first, "c3", by="bob")
    for offset, record in enumerate((first, winner)):
        state.see(offset, KEY, value(record), decode)
    seen = state.see(2, KEY, value(loser), decode)
    assert seen is not None
    assert not seen.counts
    assert "revision 2 by bob (set) does not count" in seen.problem
    assert state.record == winner


def test_record_without_a_value_ends_the_rollout() -> None:
    state = ControlState(PIPELINE)
    state.see(0, KEY, value(shifted(started(), "c2")), decode)
    seen = state.see(1, KEY, None, decode)
    assert seen is not None
    assert seen.counts
    assert state.record is None
    state.see(2, KEY, value(started("c3")), decode)
    assert state.record == started("c3")


def test_topic_that_was_created_anew_is_followed_from_its_begin() -> None:
    state = ControlState(PIPELINE)
    state.see(0, KEY, value(started()), decode)
    state.see(1, KEY, value(shifted(started(), "c2")), decode)
    state.see(0, KEY, value(started("c3")), decode)
    assert state.record == started("c3")


@pytest.mark.parametrize("before", [(b"other", b"whatever"), (None, b"whatever"), (KEY, b"unreadable")])
def test_topic_that_was_created_anew_may_begin_with_records_of_others(before: tuple[bytes | None, bytes]) -> None:
    state = ControlState(PIPELINE)
    state.see(0, KEY, value(started()), decode)
    state.see(1, KEY, value(shifted(started(), "c2")), decode)
    state.see(0, *before, decode)
    assert state.record == shifted(started(), "c2"), "nothing of ours is known of the new topic yet"
    seen = state.see(1, KEY, value(started("c3")), decode)
    assert seen is not None
    assert (seen.counts, state.record, state.problem) == (True, started("c3"), "")
    seen = state.see(2, KEY, value(started("c4")), decode)
    assert seen is not None
    assert not seen.counts, "from then on, changes follow each other"


def test_reader_goes_over_to_a_topic_that_was_created_anew() -> None:
    topic = Topic()
    topic.writer().write(started())
    topic.writer().write(shifted(started(), "c2"))
    reader = TopicReader(topic)
    reader.read_to_end()
    topic.recreate()
    topic.rows.append((b"other", b"whatever"))
    topic.writer().write(started("c3"))
    assert [own.counts for own in reader.read_to_end()] == [True]
    assert reader.record == started("c3")


def test_schema_that_cannot_be_had_now_leaves_everything_as_it_is() -> None:
    def away(_: bytes) -> RolloutRecord:
        raise SchemaUnavailable("the registry is away")

    state, first = ControlState(PIPELINE), started()
    state.see(0, KEY, value(first), decode)
    with pytest.raises(SchemaUnavailable):
        state.see(1, KEY, b"x", away)
    assert (state.record, state.problem) == (first, "")
