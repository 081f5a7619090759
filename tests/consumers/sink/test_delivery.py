"""At least once and best effort over a producer in memory: what counts when, and what records that fail lead to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from millstream.consumers.errors import Abandoned, DeliveryFailed
from millstream.consumers.observability import metrics as m
from millstream.consumers.sink import delivery
from millstream.consumers.sink.delivery import ADVICE, AtLeastOnce, BestEffort, failed
from tests.consumers.measured import Measured
from tests.consumers.sink.fake_producer import FakeProducer, Written, failure

if TYPE_CHECKING:
    from collections.abc import Callable

ENDS = {("in", 0): (1, 5)}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "POLL_INTERVAL", 0.001)


class Acknowledged(Measured):
    """A delivery by acknowledgement, with what is around it."""

    def __init__(self, *, room: int = 1000) -> None:
        super().__init__()
        self.producer = FakeProducer(room)
        self.abandon = threading.Event()
        self.lost_broker: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delivery, "Producer", self.producer.made)
            client = {"bootstrap.servers": "nowhere", "linger.ms": 3, "enable.idempotence": False}
            lost = self.lost_broker.append
            self.delivery = AtLeastOnce(client, abandon=self.abandon, metrics=self.metrics, lost_broker=lost)
        self.delivery.start()

    def write(self, *values: bytes, topic: str = "out") -> None:
        self.delivery.produce_all(topic, values, [None] * len(values))

    @property
    def readable(self) -> list[bytes]:
        return [record.value for record in self.producer.written]


def test_what_delivery_rests_on_cannot_be_set_and_the_rest_can() -> None:
    config = Acknowledged().producer.config
    assert config["enable.idempotence"] is True
    assert config["message.timeout.ms"] == 0, "an outage of any length makes lag, and loses nothing"
    assert config["linger.ms"] == 3
    assert config["partitioner"] == "murmur2_random"


def test_records_are_written_as_they_were_handed_over() -> None:
    own = Acknowledged()
    own.delivery.produce_all("out", [b"1", b"2"], [b"a", None])
    own.delivery.produce("dead", b"3", b"c", [("reason", b"no")])
    own.delivery.produce("dead", b"4", None, [])
    own.delivery.checkpoint(ENDS)
    assert own.producer.written == [
        Written("out", b"1", b"a"),
        Written("out", b"2", None),
        Written("dead", b"3", b"c", [("reason", b"no")]),
        Written("dead", b"4", None),
    ]


def test_checkpoint_waits_until_all_are_acknowledged() -> None:
    own = Acknowledged()
    own.write(b"1")
    own.producer.reachable = False
    waiting = threading.Thread(target=own.delivery.checkpoint, args=(ENDS,), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    own.producer.reachable = True
    waiting.join(10)
    assert not waiting.is_alive()
    assert own.readable == [b"1"]


def test_checkpoint_is_given_up_when_told_so() -> None:
    own = Acknowledged()
    own.write(b"1", b"2")
    own.producer.reachable = False
    own.abandon.set()
    with pytest.raises(Abandoned, match="2 output records were not acknowledged in time"):
        own.delivery.checkpoint(ENDS)


def test_push_sends_what_waits_and_does_not_wait_for_an_outage() -> None:
    own = Acknowledged()
    own.write(b"1")
    own.delivery.push()
    assert own.readable == [b"1"]
    own.producer.reachable = False
    own.write(b"2")
    own.delivery.push()
    assert own.readable == [b"1"]


def test_record_that_the_broker_refuses_ends_the_worker_at_the_checkpoint() -> None:
    own = Acknowledged()
    own.producer.refused["dead"] = KafkaError.MSG_SIZE_TOO_LARGE
    own.write(b"1")
    own.delivery.produce("dead", b"2", None, None)
    with pytest.raises(DeliveryFailed, match=r"a record for topic dead could not be written.*topic dead"):
        own.delivery.checkpoint(ENDS)


def test_failure_is_noticed_while_others_still_wait_for_the_broker() -> None:
    own = Acknowledged()
    own.producer.refused["out"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    own.write(b"1")
    own.delivery.push()
    own.producer.reachable = False
    own.write(b"2")
    with pytest.raises(DeliveryFailed, match="Grant WRITE"):
        own.delivery.checkpoint(ENDS)


def test_first_failure_is_the_one_that_is_told() -> None:
    own = Acknowledged()
    own.producer.refused |= {"out": KafkaError.TOPIC_AUTHORIZATION_FAILED, "dead": KafkaError.MSG_SIZE_TOO_LARGE}
    own.write(b"1")
    own.delivery.produce("dead", b"2", None, None)
    with pytest.raises(DeliveryFailed, match="Grant WRITE and DESCRIBE on topic out"):
        own.delivery.checkpoint(ENDS)


@pytest.mark.parametrize(
    "write",
    [lambda own: own.write(b"1"), lambda own: own.delivery.produce("out", b"1", None, None)],
    ids=["many", "one"],
)
def test_record_that_the_client_refuses_ends_the_worker(write: Callable[[Acknowledged], None]) -> None:
    own = Acknowledged()
    own.producer.next_failures["produce"] = [failure(KafkaError.MSG_SIZE_TOO_LARGE)]
    with pytest.raises(DeliveryFailed, match=r"Raise `max\.message\.bytes` of topic out"):
        write(own)


def test_full_queue_is_waited_for_and_no_record_is_left_out_or_doubled() -> None:
    own = Acknowledged(room=2)
    own.write(*(b"%d" % number for number in range(5)))
    own.delivery.produce("out", b"5", None, None)
    own.delivery.produce("out", b"6", None, None)
    own.delivery.checkpoint(ENDS)
    assert own.readable == [b"%d" % number for number in range(7)]
    assert own.value(m.RETRIES, what="producer_queue") == 3


def test_full_queue_is_given_up_when_told_so_and_when_a_record_has_failed() -> None:
    own = Acknowledged(room=1)
    own.producer.reachable = False
    own.abandon.set()
    with pytest.raises(Abandoned):
        own.write(b"1", b"2")
    other = Acknowledged(room=1)
    other.producer.refused["out"] = KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(DeliveryFailed):
        other.write(b"1", b"2", b"3")


@pytest.mark.parametrize(
    ("error", "says"),
    [(failure(KafkaError._FATAL, "out of sequence"), "out of sequence"), (SystemError("null"), "could not be written")],
    ids=["told", "untold"],
)
def test_client_that_has_failed_for_good_ends_the_worker(error: Exception, says: str) -> None:
    own = Acknowledged()
    own.write(b"1")
    own.producer.next_failures["flush"] = [error]
    with pytest.raises(DeliveryFailed, match=says):
        own.delivery.checkpoint(ENDS)


def test_what_the_client_reported_says_more_than_what_its_call_raises() -> None:
    own = Acknowledged()
    own.producer.report(KafkaError(KafkaError._FATAL, "out of sequence", fatal=True))
    own.producer.next_failures["flush"] = [SystemError("null")]
    with pytest.raises(DeliveryFailed, match="out of sequence"):
        own.delivery.push()


def test_error_of_the_client_that_is_not_fatal_is_counted_and_ends_nothing() -> None:
    own = Acknowledged()
    own.producer.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    own.write(b"1")
    own.delivery.checkpoint(ENDS)
    assert own.value(m.KAFKA_ERRORS, code="_ALL_BROKERS_DOWN") == 1
    assert len(own.lost_broker) == 1


def test_abort_takes_nothing_back() -> None:
    own = Acknowledged()
    own.write(b"1")
    own.delivery.abort()
    own.delivery.checkpoint(ENDS)
    assert own.readable == [b"1"]


def test_reports_are_served_between_two_checkpoints() -> None:
    """Else a failure would be known at the next checkpoint only, and its records kept until then."""
    own = Acknowledged()
    own.delivery.serve()
    assert own.producer.calls == ["poll"]


def test_failures_reported_between_calls_raise_nothing() -> None:
    own = Acknowledged()
    own.producer.next_failures["poll"] = [failure(KafkaError._FATAL), SystemError("null")]
    own.delivery.serve()
    own.delivery.serve()


# Best effort.


class Attempted:
    """A publisher of what nothing waits for."""

    def __init__(self, *, room: int = 1000) -> None:
        self.producer = FakeProducer(room)
        self.lost = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delivery, "Producer", self.producer.made)
            self.publisher = BestEffort({}, lost=self._lose, metrics=m.Metrics("p"))

    def _lose(self) -> None:
        self.lost += 1


def test_best_effort_writes_what_it_can_and_counts_the_rest() -> None:
    own = Attempted(room=2)
    own.producer.next_failures["produce"] = [failure(KafkaError.MSG_SIZE_TOO_LARGE)]
    for number in range(4):
        own.publisher.produce("compared", b"%d" % number, b"k")
    assert own.lost == 2, "one that was refused, one for which there was no room"
    own.publisher.close(1.0)
    assert own.producer.written == [Written("compared", b"1", b"k"), Written("compared", b"2", b"k")]
    assert own.lost == 2


def test_best_effort_counts_each_record_that_was_not_delivered() -> None:
    own = Attempted()
    own.producer.refused["compared"] = KafkaError._MSG_TIMED_OUT
    own.publisher.produce("compared", b"1", b"k")
    own.publisher.produce("compared", b"2", b"k")
    own.publisher.close(1.0)
    assert own.lost == 2


def test_best_effort_says_once_what_no_retry_cures(caplog: pytest.LogCaptureFixture) -> None:
    own = Attempted()
    own.producer.refused["compared"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    for _ in range(3):
        own.publisher.produce("compared", b"1", b"k")
    own.publisher.close(1.0)
    assert own.lost == 3
    (said,) = caplog.messages
    assert said.startswith("1 comparison was not written, such as: compared: ")
    assert said.endswith("Grant WRITE and DESCRIBE on topic compared to the user of `kafka.client`")


def test_best_effort_leaves_out_what_waits_when_the_time_is_over() -> None:
    own = Attempted()
    own.producer.reachable = False
    for _ in range(3):
        own.publisher.produce("compared", b"1", b"k")
    own.publisher.close(0.0)
    assert own.lost == 3


def test_best_effort_waits_for_no_outage() -> None:
    config = Attempted().producer.config
    assert 0 < config["message.timeout.ms"] <= 60_000


# What is told of a failure.


@pytest.mark.parametrize("code", ADVICE)
def test_final_failure_says_what_mends_it(code: int) -> None:
    said = str(failed("out", KafkaError(code, "why")))
    assert "a record for topic out could not be written: why. " in said
    assert "nothing unwritten was committed" in said
    assert "{" not in said


def test_failure_of_a_topic_that_is_not_known_names_those_that_it_may_be() -> None:
    said = str(failed(None, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert "Grant WRITE and DESCRIBE on the topics of predictions and dead letters to" in said


def test_lost_sequence_names_the_topic_created_anew_as_its_cause() -> None:
    own = Acknowledged()
    lost = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence desynchronization", fatal=True)
    own.producer.config["error_cb"](lost)
    own.write(b"1")
    with pytest.raises(DeliveryFailed, match=r"desynchronization\. .* deleted and created anew .* stop the workers"):
        own.delivery.checkpoint(ENDS)


def test_other_failure_leads_to_the_brokers_log() -> None:
    said = str(failed(None, KafkaError(KafkaError.UNKNOWN, "why")))
    assert said.startswith("records could not be written: why. Look at the broker's log;")
