import pytest

from millstream.consumers.control import writer
from millstream.consumers.control.errors import ChangeRefusedError, ControlTopicError
from millstream.consumers.control.writer import ControlWriter
from millstream.consumers.rollout.record import encode_rollout
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.records import ROLLOUT
from millstream.topics.errors import BrokerUnreachableError
from tests.consumers.control.topic_in_memory import (
    PIPELINE,
    Topic,
    TopicReader,
    TopicTransaction,
    shifted,
    started,
)

KEY = PIPELINE.encode()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PAUSE", 0.0)


def test_changes_follow_each_other() -> None:
    topic, first = Topic(), started()
    second = shifted(first, "c2")
    topic.writer().write(first)
    topic.writer().write(second)
    assert topic.state().record == second


def test_change_of_an_older_revision_is_refused_and_not_written() -> None:
    topic, first = Topic(), started()
    topic.writer().write(first)
    topic.writer().write(shifted(first, "c2", by="alice"))
    with pytest.raises(
        ChangeRefusedError, match="expected revision 1, found 2: alice made the change 'set' in the meantime"
    ):
        topic.writer().write(shifted(first, "c3", by="bob"))
    assert len(topic.rows) == 2


def test_rollout_that_exists_is_not_started_anew() -> None:
    topic = Topic()
    topic.writer().write(started("c1"))
    with pytest.raises(ChangeRefusedError, match="expected revision 0, found 1"):
        topic.writer().write(started("c2"))


def test_change_of_a_deleted_rollout_is_refused() -> None:
    topic, first = Topic(), started()
    topic.writer().write(first)
    topic.rows.append((KEY, None))
    with pytest.raises(ChangeRefusedError, match="somebody deleted the rollout's record"):
        topic.writer().write(shifted(first, "c2"))


def test_of_two_writers_at_once_one_wins_and_compaction_keeps_it() -> None:
    topic, first = Topic(), started()
    topic.writer().write(first)
    winner, loser = shifted(first, "c2", by="alice"), shifted(first, "c3", by="bob")
    topic.interrupt = lambda: topic.writer().write(winner)  # after the other one has read to the end
    with pytest.raises(ChangeRefusedError, match="alice made the change"):
        topic.writer().write(loser)
    assert topic.state().record == topic.compacted().state().record == winner


def test_writer_that_is_interrupted_without_a_change_tries_again() -> None:
    topic = Topic()
    topic.interrupt = TopicTransaction(topic).begin  # a writer that is refused fences others, too
    topic.writer().write(started())
    assert topic.state().record == started()


def test_write_whose_answer_is_lost_is_not_written_twice() -> None:
    topic = Topic()
    lost = [True]
    one = ControlWriter(
        TopicReader(topic),
        lambda: TopicTransaction(topic, answer_lost=bool(lost) and lost.pop()),
        ROLLOUT.reserved_id,
    )
    one.write(started())
    assert len(topic.rows) == 1


def test_write_whose_answer_is_lost_counts_although_others_build_on_it() -> None:
    topic, begun = Topic(), list[int]()

    def transaction() -> TopicTransaction:
        begun.append(len(begun))
        if len(begun) == 2:
            topic.writer().write(shifted(started("c1"), "c2", by="bob"))
        return TopicTransaction(topic, answer_lost=len(begun) == 1)

    ControlWriter(TopicReader(topic), transaction, ROLLOUT.reserved_id).write(started("c1"))
    assert topic.state().record == shifted(started("c1"), "c2", by="bob")
    assert (len(topic.rows), len(begun)) == (2, 2)


def test_write_whose_answer_is_lost_in_the_last_attempt_counts() -> None:
    topic, begun = Topic(), list[int]()

    def transaction() -> TopicTransaction:
        begun.append(len(begun))
        if len(begun) < writer.MAX_ATTEMPTS:
            topic.interrupt = TopicTransaction(topic).begin
        return TopicTransaction(topic, answer_lost=len(begun) == writer.MAX_ATTEMPTS)

    ControlWriter(TopicReader(topic), transaction, ROLLOUT.reserved_id).write(started())
    assert (topic.state().record, len(topic.rows)) == (started(), 1)


def test_what_became_of_the_last_attempt_is_not_told_if_the_topic_cannot_be_read_then() -> None:
    topic = Topic(read_errors=[*[None] * writer.MAX_ATTEMPTS, UNREADABLE[0]])

    def transaction() -> TopicTransaction:
        topic.interrupt = TopicTransaction(topic).begin
        return TopicTransaction(topic)

    with pytest.raises(ControlTopicError, match=r"'start' may be written: .*can't be read to its end"):
        ControlWriter(TopicReader(topic), transaction, ROLLOUT.reserved_id).write(started())


UNREADABLE = [
    ControlTopicError("the topic can't be read to its end"),
    BrokerUnreachableError("no broker answers"),
    SchemaUnavailable("the registry is away"),
]


@pytest.mark.parametrize("error", UNREADABLE)
def test_write_whose_answer_is_lost_may_be_written_if_the_topic_cannot_be_read_then(error: Exception) -> None:
    topic = Topic(read_errors=[None, error])
    one = ControlWriter(TopicReader(topic), lambda: TopicTransaction(topic, answer_lost=True), ROLLOUT.reserved_id)
    with pytest.raises(
        ControlTopicError, match=rf"'start' may be written: .*did not answer.*{error}.*Look at the state"
    ):
        one.write(started())
    assert topic.state().record == started()


@pytest.mark.parametrize("error", UNREADABLE)
def test_change_that_is_written_but_not_read_back_is_no_failure(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(read_errors=[None, error])
    topic.writer().write(started())
    assert topic.state().record == started()
    assert f"revision 1 (start) is written, but can't be read back: {error}" in caplog.text


def test_topic_that_cannot_be_read_before_is_a_failure_and_nothing_is_written() -> None:
    topic = Topic(read_errors=[ControlTopicError("the topic can't be read to its end")])
    with pytest.raises(ControlTopicError, match="can't be read to its end"):
        topic.writer().write(started())
    assert topic.rows == []


def test_writer_that_never_gets_its_turn_says_so() -> None:
    topic = Topic()

    def again() -> None:
        topic.epoch += 1
        topic.interrupt = again

    topic.interrupt = again
    with pytest.raises(ControlTopicError, match="'start' was not written in 5 attempts"):
        topic.writer().write(started())
    assert topic.rows == []


def test_unknown_state_is_replaced_in_old_readers_too() -> None:
    topic, old = Topic(), Topic()
    topic.writer().write(started("c1"))
    topic.writer().write(shifted(started("c1"), "c2"))
    reader = TopicReader(topic)  # has the state at revision 2
    reader.read_to_end()
    topic.rows.append((KEY, b"hello"))
    old.rows = topic.compacted().rows
    old.writer().write(started("c3"))
    topic.rows += old.rows[1:]
    reader.read_to_end()
    assert reader.record == old.state().record == started("c3")


def test_broker_that_does_not_fence_lets_the_topics_order_decide() -> None:
    topic, first = Topic(), started()
    topic.writer().write(first)
    winner, loser = shifted(first, "c2", by="alice"), shifted(first, "c3", by="bob")
    topic.interrupt = lambda: topic.rows.append((KEY, encode_rollout(winner, ROLLOUT.reserved_id)))
    with pytest.raises(ChangeRefusedError, match=r"revision 2 by bob \(set\) does not count"):
        topic.writer().write(loser)
    assert topic.state().record == winner
