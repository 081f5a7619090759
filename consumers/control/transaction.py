"""One Kafka transaction that writes a change of a rollout. A newer one of the same pipeline fences it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.consumers.control.errors import ControlTopicError
from millstream.pipeline.client_trial import TRANSACTION_TIMEOUT_MS
from millstream.topics.client_log import client_log
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.records import FENCED_ERRORS, PURGED_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Check = Callable[[], None]

STEP_TIMEOUT: Final = 5.0  # seconds that a call for one step of a transaction may take; then it is repeated
OUTAGE_TIMEOUT: Final = 30.0  # seconds that an outage of the broker may last
RETRY_INTERVAL: Final = 0.05  # seconds between two tries of a step
_ADVICE: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's `max.message.bytes`, or name fewer keys.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant WRITE and DESCRIBE on it to the user of `kafka.client`.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant WRITE and DESCRIBE on the transactional ID to the user of "
    "`kafka.client`.",
}


class AbandonedError(Exception):
    """The transaction did not commit, or it isn't known whether it did: another writer came in between, or the broker was away.

    Raised by `Transaction`. The caller reads the topic, and tries again with a new transaction.
    """


class Transaction(Protocol):
    """What a writer needs of a transaction. A context manager; leaving it ends what is open."""

    def begin(self) -> None:
        """End the open transaction of an earlier writer, and fence that writer.

        Raises:
            ControlTopicError: the broker refuses it, or does not answer.
        """

    def commit(self, rows: Sequence[tuple[bytes, bytes | None]], check: Check) -> None:
        """Write the rows (key, value) and commit. Raises AbandonedError, ControlTopicError.

        `check` is called when only the commit is left. If it raises, nothing counts.
        """

    def __enter__(self) -> Self:
        """The transaction itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """Abort it, if it is open."""


class KafkaTransaction:
    """See `Transaction`."""

    def __init__(self, client: Mapping[str, Any], topic: str, transactional_id: str) -> None:
        self._topic, self._id = topic, transactional_id
        self._open = False
        self._failure: KafkaError | None = None
        self._producer = Producer(
            {
                **QUICK_CONNECT,
                **client,
                "enable.idempotence": True,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.max.bytes": 100_000_000,  # only the broker's limit should count
                "linger.ms": 0,
                "retry.backoff.ms": 20,  # the client retries after this time if a request is too early for the coordinator
            },
            logger=client_log("control"),
        )

    def begin(self) -> None:
        """See `Transaction`."""
        try:
            self._step(lambda: self._producer.init_transactions(STEP_TIMEOUT))
        except AbandonedError as error:
            raise ControlTopicError(
                f"topic {self._topic}: {error}. Look at the state (`millstream rollout status PIPELINE`), then try again."
            ) from None
        self._take_log()

    def commit(self, rows: Sequence[tuple[bytes, bytes | None]], check: Check) -> None:
        """See `Transaction`."""
        try:
            self._producer.begin_transaction()
            self._open = True
            for key, value in rows:
                self._producer.produce(self._topic, value, key, partition=0, on_delivery=self._on_delivery)
        except KafkaException as problem:
            raise self._failed(problem.args[0]) from None
        with suppress(KafkaException, SystemError):  # the commit says it better
            self._producer.flush(
                STEP_TIMEOUT
            )  # once the broker has the records, it aborts the transaction after its timeout
        check()
        self._step(lambda: self._producer.commit_transaction(STEP_TIMEOUT))
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            with suppress(AbandonedError, ControlTopicError):  # the broker will end it
                self._step(lambda: self._producer.abort_transaction(STEP_TIMEOUT))
        self._take_log()

    def _take_log(self) -> None:
        """Pass the client's log lines to its logger. It prints those that are left when it ends."""
        with suppress(KafkaException, SystemError):  # after a fatal error
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() not in PURGED_ERRORS:
            self._failure = self._failure or error

    def _step(self, call: Callable[[], object]) -> None:
        """Call one step of the transaction, with retries. Raises AbandonedError, ControlTopicError."""
        until = time.monotonic() + OUTAGE_TIMEOUT
        while True:
            try:
                call()
                return
            except KafkaException as problem:
                error = problem.args[0]
                # A step that timed out goes on inside the client: calling it again resumes it.
                again = error.retriable() or error.code() == KafkaError._TIMED_OUT
                if error.txn_requires_abort() or not again:
                    raise self._failed(error) from None
                if time.monotonic() > until:
                    self._open = False
                    raise AbandonedError(
                        f"the broker did not answer for {OUTAGE_TIMEOUT:g} s ({error.str()})"
                    ) from None
                time.sleep(RETRY_INTERVAL)

    def _failed(self, error: KafkaError) -> AbandonedError | ControlTopicError:
        """The exception for an error that the same transaction can't get over."""
        self._open &= not error.fatal()  # after a fatal error, an abort is not possible
        first = self._failure or error  # the commit only says that a record failed
        if first.code() in FENCED_ERRORS or error.code() in FENCED_ERRORS:
            return AbandonedError("another writer of this rollout came in between")
        if (advice := _ADVICE.get(first.code())) is None and error.txn_requires_abort():
            return AbandonedError(first.str())
        place = self._id if first.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED else self._topic
        return ControlTopicError(
            f"{place}: the change could not be written: {first.str()}. {advice or 'Look at the broker log.'}"
        )
