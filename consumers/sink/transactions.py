"""Exactly once: the Kafka producer, which commits results and offsets in one transaction."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millstream.consumers.errors import DeliveryFailed, InstanceIdTaken, PartitionsMoved, TransactionAborted
from millstream.consumers.events import NextOffsets
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import RETRIES, TRANSACTIONS, Metrics
from millstream.consumers.observability.seldom import Kind, SeldomWarnings
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.sink.bulk import bulk_of
from millstream.consumers.sink.delivery import FINAL_ERRORS, POLL_INTERVAL, REFUSED_RECORD, Counted, LostBroker, failed
from millstream.pipeline.client_trial import TRANSACTION_TIMEOUT_MS
from millstream.topics.records import FENCED_ERRORS

TRANSACTION_DEFAULTS = {
    # Longer than a request takes. If records have waited for longer while a request is under way, the client checks in a busy
    # loop whether it may send them: with 1 ms, 5 to 9 % of the CPU with a backlog, more on a busy broker. It costs hardly any
    # latency, because a commit sends all records at once. Before a commit, they would have to wait for the transaction anyway.
    "linger.ms": 50,
    # So that records are sent early under backlog. A request of 10,000 records (the default) takes 10 ms to assemble, and the
    # client assembles one after the other: most of a transaction was still unsent at its commit.
    "batch.num.messages": 2500,
}
EXACTLY_ONCE = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    # The client retries after this time if a request is too early for the coordinator. At the default, a commit takes 100 ms.
    "retry.backoff.ms": 5,
}
# Seconds that the broker still works on a transaction after it has confirmed the commit. The next transaction begins only then:
# if its records come too early, the client retries after 20 ms, whatever its settings.
COMMIT_SETTLE_TIME = 0.005
CONNECT_TIMEOUT = 1.0  # seconds to wait for the first connection to a broker
STEP_TIMEOUT = 5.0  # seconds that a call for one step of a transaction may take; then it is repeated
# Seconds after which a step hangs for good, since it should have timed out (github.com/confluentinc/librdkafka/issues/5456).
HANG_TIMEOUT = 20.0
TRIED_AGAIN = Kind("step of a transaction is tried again", "steps of transactions are tried again")


class ExactlyOnce(Counted):
    """Commits results and offsets in one Kafka transaction (KIP-98, KIP-447).

    librdkafka classifies each error:
    - retriable: the step is repeated.
    - abortable: it raises TransactionAborted. The caller aborts, and the events are read and predicted again.
    - fatal: the worker ends, and the next one takes over.
    """

    publishes_at_checkpoint = True

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        transactional_id: str,
        assignment: Assignment,
        abandon: threading.Event,
        metrics: Metrics,
        lost_broker: LostBroker = lambda _error: None,
        broker_away: Callable[[], bool] = lambda: False,
    ) -> None:
        """Args:
        client: the pipeline's client settings.
        transactional_id: the same over restarts, so that a new worker ends the transaction that the last one left open.
        assignment: shows before a commit whether the partitions are still assigned.
        abandon: set when the worker must not wait any longer.
        metrics: where to count.
        lost_broker: see `LostBroker`.
        broker_away: whether no broker is known to answer. A step may take as long as that lasts.
        """
        own = {**EXACTLY_ONCE, "transactional.id": transactional_id}
        super().__init__({**TRANSACTION_DEFAULTS, **client}, own, abandon, metrics, lost_broker)
        self._assignment = assignment
        self._bulk = bulk_of(self._producer, self._error_cb)
        self._open = False
        self._aborted_by: KafkaError | None = None  # why this transaction must be aborted, if no retry fixes that
        self._ended = 0.0  # when the last transaction was committed, seconds on the monotonic clock
        self._begun = 0.0  # when the transaction was opened, seconds on the monotonic clock
        self._warnings = SeldomWarnings()
        self._broker_away = broker_away
        self._watchdog = Watchdog(HANG_TIMEOUT, may_wait=broker_away)

    def start(self) -> None:
        """See `Delivery`. Ends the open transaction of an earlier worker with this transactional ID, and fences that worker."""
        # Without a connection, the client would search for the coordinator again only after half a second.
        self._broker_answers(CONNECT_TIMEOUT)
        self._step("init_transactions", lambda: self._producer.init_transactions(STEP_TIMEOUT))

    def push(self) -> None:
        """See `Delivery`. It does nothing: readers see records only after the commit, which sends them."""

    def checkpoint(self, ends: NextOffsets) -> None:
        """See `Delivery`."""
        if not ends and not self._open:
            return
        self.serve()
        self._begin()
        offsets = [TopicPartition(*partition, offset) for partition, (_, offset) in ends.items()]
        # A partition can't be revoked while its offsets are committed: the callback takes the same lock.
        with self._assignment.lock:
            epochs = self._assignment.epochs
            gone = [partition for partition, (epoch, _) in ends.items() if epochs.get(partition) != epoch]
            if not gone:
                group = self._assignment.group_metadata
                self._step(
                    "send_offsets", lambda: self._producer.send_offsets_to_transaction(offsets, group, STEP_TIMEOUT)
                )
                self._step("commit", lambda: self._producer.commit_transaction(STEP_TIMEOUT))
                self._ended = time.monotonic()
        if gone:
            self._settle()
            aborted = TransactionAborted if self._assignment.is_lost(gone) else PartitionsMoved
            raise aborted(self._assignment.why_gone(gone))
        self._open = self._one_by_one = False
        self._metrics.count(TRANSACTIONS, 1, "committed")

    def abort(self) -> None:
        """See `Delivery`."""
        if self._open:
            try:
                self._step("abort", lambda: self._producer.abort_transaction(STEP_TIMEOUT))
            except TransactionAborted as error:
                raise DeliveryFailed(
                    f"a transaction could not be aborted: {error}; the broker ends it by itself."
                ) from None
            self._open = False
            self._one_by_one = True  # if a record failed, its delivery report will show why
            self._metrics.count(TRANSACTIONS, 1, "aborted")
        self._failure = self._failed_topic = self._aborted_by = None

    def _begin(self) -> None:
        if not self._open:
            time.sleep(max(self._ended + COMMIT_SETTLE_TIME - time.monotonic(), 0.0))
            self._step("begin", self._producer.begin_transaction)
            self._open = True
            self._begun = time.monotonic()

    def _settle(self) -> None:
        """Wait until the broker has accepted or refused all records of the transaction.

        While the broker still ends the previous transaction, it does not know this one. It would answer an abort with
        INVALID_TXN_STATE, which the client treats as fatal.
        """
        with suppress(KafkaException, SystemError):  # the abort raises the same error
            while self._producer.flush(POLL_INTERVAL):
                self._check()

    def _step(self, name: str, call: Callable[[], object]) -> None:
        """Call one step of the transaction, with retries."""
        tried = 0.0  # seconds since a broker answers, without those in which the whole process was stopped
        while True:
            started = time.monotonic()
            try:
                self._watchdog.watched(f"the Kafka client, in {name} of a transaction,", call)
                return
            except KafkaException as problem:
                error = problem.args[0]
                # Records that timed out make the transaction abortable. Their error has the same code as a step that timed out.
                again = error.retriable() or error.code() == KafkaError._TIMED_OUT
                if error.txn_requires_abort() or not again:
                    raise self._answer(self._failed_topic, error) from None
                # A step that timed out goes on inside the client. Only the same call again resumes it.
                self._metrics.count(RETRIES, 1, f"transaction_{name}")
                self._warnings.warn(TRIED_AGAIN, 1, f"{name}: {error.str()}")
                self._check()
                self._abandon.wait(POLL_INTERVAL)
                took = min(time.monotonic() - started, STEP_TIMEOUT + POLL_INTERVAL)
                tried = 0.0 if self._broker_away() else tried + took
                if tried > HANG_TIMEOUT and self._broker_answers():
                    raise DeliveryFailed(
                        f"the Kafka client gets no further with a transaction ({name}: {error.str()}) though the broker answers. "
                        f"This worker ends; nothing uncommitted counts, and a new worker goes on."
                    ) from None

    def _broker_answers(self, timeout: float = STEP_TIMEOUT) -> bool:
        """Whether a broker answers within so many seconds."""
        try:
            return bool(self._producer.list_topics(timeout=timeout).brokers)
        except KafkaException:
            return False

    def _answer(self, topic: str | None, error: KafkaError) -> Exception:
        """The exception for an error that a retry can't fix."""
        if error.code() in FENCED_ERRORS or (self._failure is not None and self._failure.code() in FENCED_ERRORS):
            if (age := time.monotonic() - self._begun) * 1000 > EXACTLY_ONCE["transaction.timeout.ms"]:
                return DeliveryFailed(
                    f"the broker has ended a transaction of this worker, which was open for {age:.0f} s: the broker was away, or "
                    f"this process stood still. Nothing of it counts, and a new worker answers its events."
                )
            return InstanceIdTaken(
                "another worker with this instance ID has taken over: this one ends, and what it had not committed is answered "
                "by the other. Give each worker an instance ID of its own (--instance-id)."
            )
        if self._failure is not None and self._failure.code() in FINAL_ERRORS:
            return failed(self._failed_topic, self._failure)
        # For records in bulk, the client doesn't report which topic failed. The next transaction shows it.
        untold = topic is None and self._open and self._bulk is not None and not self._one_by_one
        if error.fatal() or error.code() in (REFUSED_RECORD if untold else FINAL_ERRORS):
            # After some errors, the broker refuses the abort. Only the first error says what to do.
            return failed(topic, error if error.code() in FINAL_ERRORS else self._aborted_by or error)
        if error.code() == KafkaError.ILLEGAL_GENERATION:  # the group has moved on, and this worker doesn't know it yet
            return PartitionsMoved(
                f"the group moves partitions between workers, because one joined or left it ({error.str()})"
            )
        self._aborted_by = error if error.code() in FINAL_ERRORS else None
        return TransactionAborted(error.str())
