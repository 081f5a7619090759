"""Exactly once over a producer in memory: records and offsets count together or not at all, whatever the broker answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from millstream.consumers.errors import Abandoned, DeliveryFailed, InstanceIdTaken, PartitionsMoved, TransactionAborted
from millstream.consumers.observability import metrics as m
from millstream.consumers.sink import bulk as bulk_module
from millstream.consumers.sink import delivery, transactions
from millstream.consumers.sink.transactions import ExactlyOnce
from millstream.pipeline.client_trial import TRANSACTION_TIMEOUT_MS
from tests.consumers.clock import Clock
from tests.consumers.in_memory import GivenAssignment
from tests.consumers.measured import Measured
from tests.consumers.sink.fake_producer import FakeBulk, FakeProducer, Written, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.events import Epochs

A, B = ("in", 0), ("in", 1)


class Transactional(Measured):
    """A delivery by transaction, with what is around it."""

    def __init__(
        self, *, room: int = 1000, bulk: bool = False, broker_away: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self.producer = FakeProducer(room)
        self.abandon = threading.Event()
        self.assignment = GivenAssignment({A: 1, B: 1})
        self.assignment.group_metadata = "member 7"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delivery, "Producer", self.producer.made)
            if bulk:
                patch.setattr(bulk_module, "Bulk", FakeBulk)
            self.delivery = ExactlyOnce(
                {"bootstrap.servers": "nowhere", "linger.ms": 3},
                transactional_id="g-slot-0",
                assignment=self.assignment,
                abandon=self.abandon,
                metrics=self.metrics,
                broker_away=broker_away,
            )

    def write(self, *values: bytes, topic: str = "out") -> None:
        self.delivery.produce_all(topic, values, [None] * len(values))

    def ended(self) -> tuple[float | None, float | None]:
        """How many transactions were committed, and aborted."""
        return self.value(m.TRANSACTIONS, outcome="committed"), self.value(m.TRANSACTIONS, outcome="aborted")

    @property
    def readable(self) -> list[bytes]:
        return [record.value for record in self.producer.written]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "POLL_INTERVAL", 0.001)
    monkeypatch.setattr(delivery, "POLL_INTERVAL", 0.001)


def test_client_has_the_instance_id_and_what_delivery_needs() -> None:
    config = Transactional().producer.config
    assert config["transactional.id"] == "g-slot-0"
    assert config["enable.idempotence"] is True
    assert config["linger.ms"] == 3, "what the pipeline file says counts, not the default"
    assert config["bootstrap.servers"] == "nowhere"


def test_start_ends_what_a_predecessor_left_open() -> None:
    own = Transactional()
    own.producer.next_failures["init_transactions"] = [failure(KafkaError._TIMED_OUT, retriable=True)]
    own.delivery.start()
    assert own.producer.calls == ["list_topics", "init_transactions", "init_transactions"]
    assert own.value(m.RETRIES, what="transaction_init_transactions") == 1


def test_start_goes_on_where_the_broker_is_not_reached_at_once() -> None:
    own = Transactional()
    own.producer.reachable = False
    own.delivery.start()
    assert own.producer.calls[-1] == "init_transactions"


def test_start_is_given_up_when_told_so() -> None:
    own = Transactional()
    own.abandon.set()
    own.producer.next_failures["init_transactions"] = [failure(KafkaError._TRANSPORT, retriable=True)]
    with pytest.raises(Abandoned):
        own.delivery.start()


@pytest.mark.parametrize("bulk", [False, True])
def test_records_and_offsets_count_together_and_not_before(bulk: bool) -> None:
    own = Transactional(bulk=bulk)
    own.write(b"1", b"2")
    own.delivery.produce("dead", b"3", b"k", [("reason", b"no")])
    own.delivery.push()
    own.delivery.serve()
    assert own.readable == []
    own.delivery.checkpoint({A: (1, 5), B: (1, 7)})
    assert own.readable == [b"1", b"2", b"3"]
    assert own.producer.written[2] == Written("dead", b"3", b"k", [("reason", b"no")])
    assert own.producer.offsets == {A: 5, B: 7}
    assert own.producer.group == "member 7"
    assert own.ended() == (1, None)


def test_transaction_is_begun_with_the_first_record_and_once() -> None:
    own = Transactional()
    assert "begin_transaction" not in own.producer.calls
    own.write(b"1")
    own.write(b"2")
    own.delivery.produce("out", b"3", None, None)
    assert own.producer.calls.count("begin_transaction") == 1
    own.delivery.checkpoint({A: (1, 5)})
    own.write(b"4")
    assert own.producer.calls.count("begin_transaction") == 2


def test_lone_dead_letter_begins_a_transaction_too() -> None:
    own = Transactional()
    own.delivery.produce("dead", b"1", None, None)
    own.delivery.checkpoint({A: (1, 5)})
    assert own.readable == [b"1"]


def test_offsets_without_records_are_a_transaction_too() -> None:
    """Tombstones and skipped events have no record, and are done."""
    own = Transactional()
    own.delivery.checkpoint({A: (1, 5)})
    assert own.producer.offsets == {A: 5}
    assert own.ended() == (1, None)


def test_nothing_to_commit_is_no_transaction() -> None:
    own = Transactional()
    own.delivery.checkpoint({})
    own.delivery.abort()
    assert own.producer.calls == []
    assert own.ended() == (None, None)


def test_records_without_offsets_are_committed() -> None:
    own = Transactional()
    own.write(b"1")
    own.delivery.checkpoint({})
    assert own.readable == [b"1"]


def test_records_of_the_next_transaction_are_held_back_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker still ends the one before; what comes too early the client announces again after 20 ms."""
    clock = Clock(monkeypatch, transactions)
    own = Transactional()
    own.write(b"1")
    own.delivery.checkpoint({A: (1, 1)})
    clock.now += 0.002
    own.write(b"2")
    own.delivery.checkpoint({A: (1, 2)})
    clock.now += 1.0
    own.write(b"3")
    assert clock.slept == pytest.approx([0, 0.003, 0])


@pytest.mark.parametrize("bulk", [False, True])
def test_full_queue_is_waited_for(bulk: bool) -> None:
    own = Transactional(room=2, bulk=bulk)
    own.write(*(b"%d" % number for number in range(5)))
    own.delivery.checkpoint({A: (1, 5)})
    assert own.readable == [b"0", b"1", b"2", b"3", b"4"]
    assert own.value(m.RETRIES, what="producer_queue") == 2


@pytest.mark.parametrize("bulk", [False, True])
def test_full_queue_is_given_up_when_told_so(bulk: bool) -> None:
    own = Transactional(room=1, bulk=bulk)
    own.producer.reachable = False
    own.abandon.set()
    with pytest.raises(Abandoned, match="1 output records were not acknowledged"):
        own.write(b"1", b"2")


def test_keys_go_with_their_values_in_bulk() -> None:
    own = Transactional(room=2, bulk=True)
    own.delivery.produce_all("out", [b"1", b"2", b"3"], [b"a", None, b"c"])
    own.delivery.checkpoint({A: (1, 3)})
    assert [(record.key, record.value) for record in own.producer.written] == [(b"a", b"1"), (None, b"2"), (b"c", b"3")]


# Steps that are called again.


@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("begin_transaction", "begin"),
        ("send_offsets_to_transaction", "send_offsets"),
        ("commit_transaction", "commit"),
    ],
)
@pytest.mark.parametrize(
    "error",
    [failure(KafkaError._TIMED_OUT), failure(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, retriable=True)],
    ids=["timed out", "retriable"],
)
def test_step_that_takes_its_time_is_called_again(call: str, step: str, error: Exception) -> None:
    own = Transactional()
    own.producer.next_failures[call] = [error, error]
    own.write(b"1")
    own.delivery.checkpoint({A: (1, 5)})
    assert own.producer.calls.count(call) == 3
    assert own.readable == [b"1"]
    assert own.value(m.RETRIES, what=f"transaction_{step}") == 2
    assert own.ended() == (1, None)


def test_step_that_gets_no_further_though_the_broker_answers_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Transactional()
    own.write(b"1")
    monkeypatch.setattr(transactions, "HANG_TIMEOUT", -1.0)
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._TIMED_OUT)]
    with pytest.raises(DeliveryFailed, match=r"gets no further with a transaction \(commit"):
        own.delivery.checkpoint({A: (1, 5)})
    assert own.readable == []


def test_step_is_called_again_for_as_long_as_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Transactional()
    own.write(b"1")
    monkeypatch.setattr(transactions, "HANG_TIMEOUT", -1.0)
    own.producer.reachable = False
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._TIMED_OUT) for _ in range(5)]
    own.delivery.checkpoint({A: (1, 5)})
    assert own.ended() == (1, None)


def test_step_is_given_as_long_as_one_may_take_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 s of turns of 5 s: the fifth is one too many."""
    monkeypatch.setattr(transactions, "POLL_INTERVAL", 0.0)
    clock = Clock(monkeypatch, transactions)
    own = Transactional()
    own.write(b"1")
    clock.step = transactions.STEP_TIMEOUT
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._TIMED_OUT) for _ in range(5)]
    with pytest.raises(DeliveryFailed, match="gets no further"):
        own.delivery.checkpoint({A: (1, 5)})
    assert own.producer.calls.count("commit_transaction") == 5


def test_time_for_which_the_process_stood_still_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn counts as long as a step may take and no longer."""
    own = Transactional()
    own.write(b"1")
    Clock(monkeypatch, transactions).step = 1000.0
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._TIMED_OUT) for _ in range(3)]
    own.delivery.checkpoint({A: (1, 5)})
    assert own.readable == [b"1"]


def test_step_is_given_up_when_told_so() -> None:
    own = Transactional()
    own.write(b"1")
    own.abandon.set()
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._TIMED_OUT)]
    with pytest.raises(Abandoned):
        own.delivery.checkpoint({A: (1, 5)})


# Transactions that are taken back.


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
@pytest.mark.parametrize(
    "error",
    [
        failure(KafkaError.UNKNOWN_MEMBER_ID, "thrown out", txn_requires_abort=True),
        failure(KafkaError._TIMED_OUT, "records timed out", txn_requires_abort=True),
        failure(KafkaError._TIMED_OUT, "retriable too", txn_requires_abort=True, retriable=True),
        failure(KafkaError.INVALID_TXN_STATE, "neither"),
    ],
    ids=lambda error: error.args[0].str(),
)
def test_what_the_broker_took_back_counts_nowhere_and_is_aborted(call: str, error: Exception) -> None:
    own = Transactional()
    own.producer.next_failures[call] = [error]
    own.write(b"1")
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    assert own.producer.calls.count(call) == 1, "it is not tried again"
    own.delivery.abort()
    assert (own.readable, own.producer.offsets) == ([], {})
    assert own.ended() == (None, 1)


def test_transaction_after_an_abort_counts_by_itself() -> None:
    own = Transactional()
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError.INVALID_TXN_STATE)]
    own.write(b"1")
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    own.delivery.abort()
    own.write(b"2")
    own.delivery.checkpoint({A: (1, 4)})
    assert (own.readable, own.producer.offsets) == ([b"2"], {A: 4})
    assert own.ended() == (1, 1)


def test_error_that_the_user_can_fix_is_told_if_the_abort_after_it_fails() -> None:
    own = Transactional(bulk=True)
    forbidden = failure(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed", txn_requires_abort=True)
    own.producer.next_failures["commit_transaction"] = [forbidden]
    own.write(b"1")
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    own.producer.next_failures["abort_transaction"] = [
        failure(KafkaError.INVALID_TXN_STATE, "invalid state", fatal=True)
    ]
    with pytest.raises(
        DeliveryFailed, match=r"Topic authorization failed\. Grant WRITE and DESCRIBE on the topics of predictions"
    ):
        own.delivery.abort()


def test_error_that_was_mended_is_not_told_of_a_later_one() -> None:
    own = Transactional(bulk=True)
    forbidden = failure(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed", txn_requires_abort=True)
    own.producer.next_failures["commit_transaction"] = [
        forbidden,
        failure(KafkaError._FATAL, "something else", fatal=True),
    ]
    own.write(b"1")
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    own.delivery.abort()
    own.write(b"1")
    with pytest.raises(DeliveryFailed, match="something else"):
        own.delivery.checkpoint({A: (1, 5)})


def test_transaction_is_aborted_once() -> None:
    own = Transactional()
    own.write(b"1")
    own.delivery.abort()
    own.delivery.abort()
    assert own.producer.calls.count("abort_transaction") == 1
    assert own.ended() == (None, 1)


def test_abort_is_called_again_where_it_takes_its_time() -> None:
    own = Transactional()
    own.write(b"1")
    own.producer.next_failures["abort_transaction"] = [failure(KafkaError._TIMED_OUT)]
    own.delivery.abort()
    assert own.producer.calls.count("abort_transaction") == 2
    assert own.value(m.RETRIES, what="transaction_abort") == 1


def test_transaction_that_cannot_be_aborted_ends_the_worker() -> None:
    own = Transactional()
    own.write(b"1")
    own.producer.next_failures["abort_transaction"] = [failure(KafkaError.INVALID_TXN_STATE, "what transaction?")]
    with pytest.raises(DeliveryFailed, match=r"could not be aborted: .*what transaction\?"):
        own.delivery.abort()


@pytest.mark.parametrize("epochs", [{B: 1}, {A: 2, B: 1}, {}], ids=["gone", "came back", "all gone"])
def test_results_of_a_partition_that_went_before_the_commit_do_not_count(epochs: Epochs) -> None:
    """Its new owner answers the same events; a partition that came back was another's meanwhile."""
    own = Transactional()
    own.write(b"1", b"2")
    own.assignment.given = epochs
    with pytest.raises(PartitionsMoved, match=r"in/0.* went to another worker before"):
        own.delivery.checkpoint({A: (1, 5), B: (1, 7)})
    assert "send_offsets_to_transaction" not in own.producer.calls
    own.delivery.abort()
    assert (own.readable, own.producer.offsets) == ([], {})


def test_abort_names_the_partitions_as_ranges_and_the_session_that_the_group_ended() -> None:
    own = Transactional()
    own.write(b"1")
    own.assignment.given = {}
    own.assignment.remove([A, B], lost=True)
    with pytest.raises(
        TransactionAborted, match=r"the group ended this worker's session, .* on in/0-1, .*joins again by itself"
    ) as raised:
        own.delivery.checkpoint({A: (1, 5), B: (1, 7)})
    assert not isinstance(raised.value, PartitionsMoved)


def test_commit_of_an_earlier_generation_says_that_partitions_move() -> None:
    own = Transactional()
    own.producer.next_failures["send_offsets_to_transaction"] = [
        failure(KafkaError.ILLEGAL_GENERATION, "generation id is not valid", txn_requires_abort=True)
    ]
    own.write(b"1")
    with pytest.raises(
        PartitionsMoved, match=r"partitions between workers, .* joined or left it \(generation id is not"
    ):
        own.delivery.checkpoint({A: (1, 5)})
    own.delivery.abort()
    assert (own.readable, own.producer.offsets) == ([], {})


def test_step_that_the_outage_held_up_has_its_whole_time_once_the_broker_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "POLL_INTERVAL", 0.0)
    outage = iter([True] * 20)
    clock = Clock(monkeypatch, transactions)
    own = Transactional(broker_away=lambda: next(outage, False))
    own.write(b"1")
    clock.step = transactions.STEP_TIMEOUT
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._TIMED_OUT) for _ in range(8)]
    own.delivery.checkpoint({A: (1, 5)})
    assert own.ended() == (1, None)


def test_broker_has_a_transactions_records_before_it_is_aborted_for_a_partition_that_went() -> None:
    """It may know nothing of the transaction before, and refuse its abort for good."""
    own = Transactional()
    own.write(b"1")
    own.assignment.given = {}
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    assert len(own.producer) == 0
    assert own.producer.calls[-1] == "flush"


def test_records_that_the_broker_does_not_take_before_an_abort_are_not_waited_for_when_told_so() -> None:
    own = Transactional()
    own.write(b"1")
    own.assignment.given = {}
    own.producer.reachable = False
    own.abandon.set()
    with pytest.raises(Abandoned):
        own.delivery.checkpoint({A: (1, 5)})


def test_client_that_failed_while_records_were_waited_for_leaves_the_word_to_the_abort() -> None:
    own = Transactional()
    own.write(b"1")
    own.assignment.given = {}
    own.producer.next_failures["flush"] = [failure(KafkaError._FATAL)]
    with pytest.raises(TransactionAborted, match="went to another worker"):
        own.delivery.checkpoint({A: (1, 5)})


def test_partition_cannot_go_while_its_offsets_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Transactional()
    held: list[tuple[str, bool]] = []

    def noting(name: str) -> Callable[..., None]:
        call = getattr(own.producer, name)

        def noted(*arguments: object) -> None:
            held.append((name, own.assignment.lock.locked()))
            call(*arguments)

        return noted

    for name in ("send_offsets_to_transaction", "commit_transaction", "flush"):
        monkeypatch.setattr(own.producer, name, noting(name))
    own.delivery.checkpoint({A: (1, 5)})
    assert held == [("send_offsets_to_transaction", True), ("commit_transaction", True)]
    own.write(b"1")
    own.assignment.given = {}
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 6)})
    assert held[2:] == [("flush", False)], "a rebalance is not held up by what does not count"


# One by one after an abort.


def test_records_go_in_bulk_until_a_transaction_is_aborted_and_again_after_the_next_one() -> None:
    own = Transactional(bulk=True)
    for number, ending in enumerate(["commit", "abort", "commit", "commit"]):
        own.write(b"%d" % number)
        if ending == "commit":
            own.delivery.checkpoint({A: (1, number)})
        else:
            own.delivery.abort()
    assert [(record.value, record.headers == "bulk") for record in own.producer.written] == [
        *((b"0", True), (b"2", False), (b"3", True)),
    ]


def test_record_that_its_topic_refuses_is_told_by_its_report_after_the_abort() -> None:
    """In bulk nobody says which topic's it is; one by one its report does."""
    own = Transactional(bulk=True)
    own.producer.refused["out"] = KafkaError.MSG_SIZE_TOO_LARGE
    own.write(b"1")
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    own.delivery.abort()
    own.write(b"1")
    with pytest.raises(DeliveryFailed, match=r"topic out could not be written.*max\.message\.bytes"):
        own.delivery.checkpoint({A: (1, 5)})
    assert own.readable == []


def test_record_refused_at_once_in_bulk_leads_where_it_leads_one_by_one() -> None:
    own = Transactional(bulk=True)
    own.producer.next_failures["bulk"] = [failure(KafkaError.MSG_SIZE_TOO_LARGE)]
    with pytest.raises(DeliveryFailed, match="topic out could not be written"):
        own.write(b"1")
    other = Transactional(bulk=True)
    other.producer.next_failures["bulk"] = [failure(KafkaError.INVALID_TXN_STATE)]
    with pytest.raises(TransactionAborted):
        other.write(b"1")


@pytest.mark.parametrize("headers", [None, [("trace", b"1")]])
def test_record_that_the_client_refuses_ends_the_worker_with_what_mends_it(headers: list[tuple[str, bytes]]) -> None:
    own = Transactional()
    own.producer.next_failures["produce"] = [failure(KafkaError._UNKNOWN_TOPIC)]
    with pytest.raises(DeliveryFailed, match="Create topic out"):
        own.delivery.produce("out", b"1", None, headers)


def test_failure_that_was_aborted_is_forgotten() -> None:
    own = Transactional()
    own.producer.refused["out"] = KafkaError.INVALID_TXN_STATE
    own.write(b"1")
    with pytest.raises(TransactionAborted):
        own.delivery.checkpoint({A: (1, 5)})
    own.delivery.abort()
    own.producer.refused.clear()
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError.UNKNOWN_TOPIC_OR_PART)]
    own.write(b"1")
    with pytest.raises(DeliveryFailed, match="records could not be written"):
        own.delivery.checkpoint({A: (1, 5)})


# Ends of the worker.


@pytest.mark.parametrize(
    "code", [KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH], ids=str
)
def test_worker_whose_instance_id_another_took_ends(code: int) -> None:
    own = Transactional()
    own.write(b"1")
    own.producer.next_failures["commit_transaction"] = [failure(code, fatal=True)]
    with pytest.raises(InstanceIdTaken, match="--instance-id"):
        own.delivery.checkpoint({A: (1, 5)})
    assert own.readable == []


def test_client_that_was_fenced_meanwhile_says_so_at_the_next_step() -> None:
    own = Transactional()
    own.write(b"1")
    own.producer.report(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
    own.producer.report(KafkaError(KafkaError._FATAL, "and so on", fatal=True))
    assert own.value(m.KAFKA_ERRORS, code="_FENCED") == 1
    own.producer.next_failures["send_offsets_to_transaction"] = [failure(KafkaError._STATE)]
    with pytest.raises(InstanceIdTaken):
        own.delivery.checkpoint({A: (1, 5)})


def test_transaction_that_the_broker_ended_for_its_age_is_no_other_workers_doing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, transactions)
    own = Transactional()
    own.write(b"1")
    clock.now += TRANSACTION_TIMEOUT_MS / 1000 + 1
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._FENCED, fatal=True)]
    with pytest.raises(DeliveryFailed, match="the broker has ended a transaction of this worker"):
        own.delivery.checkpoint({A: (1, 5)})


def test_fatal_error_of_the_client_ends_the_worker() -> None:
    own = Transactional()
    own.write(b"1")
    own.producer.next_failures["commit_transaction"] = [failure(KafkaError._FATAL, "out of order", fatal=True)]
    with pytest.raises(DeliveryFailed, match="out of order"):
        own.delivery.checkpoint({A: (1, 5)})


def test_error_of_the_client_that_is_not_fatal_ends_nothing() -> None:
    own = Transactional()
    own.write(b"1")
    own.producer.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    own.producer.next_failures["poll"] = [failure(KafkaError._ALL_BROKERS_DOWN)]
    own.delivery.checkpoint({A: (1, 5)})
    assert own.ended() == (1, None)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional IDs that begin with the group's name"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Grant READ on the group"),
    ],
)
def test_right_that_is_missing_is_named(code: int, says: str) -> None:
    own = Transactional()
    own.producer.next_failures["init_transactions"] = [failure(code)]
    with pytest.raises(DeliveryFailed, match=says):
        own.delivery.start()
