"""Writes dead letters' events back to their topics, once: event and marker in one Kafka transaction."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.pipeline.client_trial import TRANSACTION_TIMEOUT_MS
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dead_letters import DeadLetter
from millstream.topics.client_log import client_log
from millstream.topics.dead_letter_reader import DeadLetterReader
from millstream.topics.dead_letters import Position, Replay, Stays, StoredLetter, marker, replay_of
from millstream.topics.errors import TopicError
from millstream.topics.records import FENCED_ERRORS, PURGED_ERRORS

log = logging.getLogger(__name__)

STEP_TIMEOUT: Final = 5.0  # seconds that a call for one step of a transaction may take; then it is repeated
OUTAGE_TIMEOUT: Final = 60.0  # seconds that an outage of the broker may last

MAX_ATTEMPTS: Final = 3  # of a transaction that the client gives up, although the broker refuses no event
MAX_AHEAD_MS: Final = 86_400_000  # ms ahead of the clock: a later timestamp would keep its segment from being deleted
BATCH_LETTERS, BATCH_BYTES = 100, 4_000_000  # of one transaction, so that it ends well within its time limit

REFUSALS: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "the event is larger than the topic takes: raise its `max.message.bytes`",
    KafkaError.INVALID_TIMESTAMP: "the event is older than the topic takes (raise its "
    "`message.timestamp.before.max.ms`) or from the future",
    KafkaError.INVALID_RECORD: "the topic refuses the event (a compacted topic wants a key)",
    KafkaError._UNKNOWN_PARTITION: "the topic has no such partition any more",
}
"""Errors that concern a single event. The others can be replayed without it."""
ADVICE: Final = {
    KafkaError.INVALID_RECORD: "The dead-letter topic takes no records without key: set its `cleanup.policy` to `delete`, for "
    "where it is compacted a dead letter displaces the one before it with the same key.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant WRITE on input and dead-letter topics to the user of `kafka.client`.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant WRITE on the transactional ID "
    "`GROUP-dead-letters-replay`, where GROUP is the group's name.",
}


class _GivenUpError(TopicError):
    """The Kafka client gave a transaction up, although the broker refused no event."""


def plan(letters: Iterable[StoredLetter], reader: DeadLetterReader, pipeline: Pipeline) -> Iterator[Replay | Stays]:
    """Create the replay of each letter, or the reason why it can't be replayed.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicError: a topic can't be read.
    """
    # The timestamp is kept only if it is the event time. Otherwise a new timestamp is better: retention deletes the record later.
    times_of_events = pipeline.input.event_time is None
    latest = time.time() * 1000 + MAX_AHEAD_MS
    partitions = {topic: reader.partitions(topic) for topic in pipeline.input.topics}
    # Event -> its letter: with at least once, a worker may have written two of them.
    planned: dict[object, Position] = {}
    for stored in letters:
        letter = stored.letter
        # A dead letter must not make it write to other topics than this pipeline's inputs.
        if letter.pipeline != pipeline.name:
            yield Stays(stored.position, f"it is pipeline {letter.pipeline}'s")
        elif letter.topic not in partitions:
            yield Stays(stored.position, f"its topic {letter.topic} is no input of this pipeline (any more)")
        elif letter.partition not in partitions[letter.topic]:
            yield Stays(stored.position, f"topic {letter.topic} has no partition {letter.partition} (any more)")
        else:
            original = reader.original(letter) if letter.value is None else None
            keep_timestamp = times_of_events and letter.timestamp <= latest
            replay = replay_of(stored, pipeline.dead_letters.topic, original, keep_timestamp=keep_timestamp)
            unread = original is not None and original.headers is None
            if replay and (first := planned.setdefault(_event_of(letter), stored.position)) != stored.position:
                replay = replace(replay, copy_of=first)
            yield replay or Stays(
                stored.position,
                f"its value was left out, and the event {'has headers that can not be read' if unread else 'is gone'}"
                f"{' in' if unread else ' from'} {letter.topic}/{letter.partition}@{letter.offset}",
            )


def _event_of(letter: DeadLetter) -> object:
    """Equal for letters of the same event. In a topic that was created anew, another event may have its offset."""
    content = hash((letter.key, letter.value))  # not the value itself, which may be large
    return letter.topic, letter.partition, letter.offset, letter.timestamp, content


def batches(replays: Iterable[Replay]) -> Iterator[list[Replay]]:
    """Split the events into transactions."""
    batch: list[Replay] = []
    size = 0
    for replay in replays:
        batch.append(replay)
        size += len(replay.value)
        if len(batch) == BATCH_LETTERS or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Replayer:
    """Replays each batch in a transaction. A new replay fences an earlier one. A context manager."""

    def __init__(self, client: Mapping[str, Any], group: str, topic: str) -> None:
        """Args:
        client: the pipeline's client settings.
        group: the pipeline's consumer group; the transactional id is made from it.
        topic: the dead-letter topic.
        """
        self._topic = topic
        self._refused: dict[Position, str] = {}
        self._open = False
        self._producer = Producer(
            {
                **client,
                "enable.idempotence": True,
                "transactional.id": f"{group}-dead-letters-replay",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.max.bytes": 100_000_000,  # only the broker's limit should count
                "batch.num.messages": 1,  # so that the broker refuses a single event
                "linger.ms": 0,
            },
            logger=client_log("replay"),
        )

    def start(self) -> None:
        """End the open transaction of an earlier replay, and fence that replay. It adds no more markers after this.

        Raises:
            TopicError: the broker refuses it, or does not answer.
        """
        self._step(lambda: self._producer.init_transactions(STEP_TIMEOUT))

    def replay(self, events: Sequence[Replay]) -> dict[Position, str]:
        """Write the events and their letters' markers in one transaction, and wait until it is committed.

        Of a letter whose event was written with another one, only the marker is written.

        Returns:
            the letters whose events the broker refuses, with the reason. All others are replayed.

        Raises:
            TopicError: no event was replayed, unless the message says that this is not known.
        """
        while left := [event for event in events if not self._why_refused(event)]:
            if not (faults := self._repeated_transaction(left)):
                break
            self._refused |= faults
        return {event.position: why for event in events if (why := self._why_refused(event))}

    def _why_refused(self, event: Replay) -> str:
        """Why the broker refused the event, with this letter or with another one; empty if it didn't."""
        refused = self._refused.get(event.position, "")
        return refused if event.copy_of is None else refused or self._refused.get(event.copy_of, "")

    def close(self) -> None:
        """Abort the open transaction, so that no reader waits for it."""
        if self._open:
            try:
                self._step(lambda: self._producer.abort_transaction(STEP_TIMEOUT))
            except TopicError as error:  # the broker will end it
                log.warning("%s", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repeated_transaction(self, events: Sequence[Replay]) -> dict[Position, str]:
        """As `_transaction`, repeated if the client gives it up, for example to get a new epoch after a refused record."""
        for _ in range(MAX_ATTEMPTS - 1):
            with suppress(_GivenUpError):
                return self._transaction(events)
        return self._transaction(events)

    def _transaction(self, events: Sequence[Replay]) -> dict[Position, str]:
        """Commit all events; or abort, and return the events that the broker refuses. Raises TopicError."""
        faults: dict[Position | None, KafkaError] = {}
        self._producer.begin_transaction()
        self._open = True
        self._write(events, faults)
        if not faults:
            self._step(lambda: self._producer.commit_transaction(STEP_TIMEOUT))
            self._open = False
            return {}
        found = dict(faults)  # copied, because an abort adds all events that are not sent yet
        self._step(lambda: self._producer.abort_transaction(STEP_TIMEOUT))
        self._open = False
        refused = {
            position: f"{REFUSALS[error.code()]} ({error.str()})"
            for position, error in found.items()
            if position is not None and error.code() in REFUSALS
        }
        if refused:
            return refused
        failure = _failed(next(iter(found.values())))
        if all(error.code() in PURGED_ERRORS for error in found.values()):
            raise _GivenUpError(str(failure))
        raise failure

    def _write(self, events: Sequence[Replay], faults: dict[Position | None, KafkaError]) -> None:
        """Send events and markers, and wait until each is acknowledged or in `faults` (markers as None)."""

        def note(position: Position | None, error: KafkaError | None, _: object) -> None:
            if error is not None:
                faults.setdefault(position, error)

        for event in events:
            try:
                if event.copy_of is None:
                    self._send(
                        topic=event.topic,
                        partition=event.partition,
                        key=event.key,
                        value=event.value,
                        headers=list(event.headers),
                        on_delivery=partial(note, event.position),
                        **({} if event.timestamp is None else {"timestamp": event.timestamp}),
                    )
                self._send(
                    topic=self._topic,
                    partition=event.position.partition,
                    headers=marker(event.position),
                    on_delivery=partial(note, None),
                )
            except KafkaException as error:
                # After the first refusal, the client takes no more records. The callback reports the refused one.
                self._flush(STEP_TIMEOUT)
                if not faults or error.args[0].code() in REFUSALS:
                    faults[event.position] = error.args[0]
                return
        until = time.monotonic() + OUTAGE_TIMEOUT
        while self._flush(1.0) and not faults and time.monotonic() < until:
            pass

    def _send(self, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(**record)
                return
            except BufferError:  # the client's queue is full: wait for the broker
                self._producer.poll(0.1)

    def _flush(self, seconds: float) -> int:
        """Send records, and let the client call its callbacks. Returns how many records are left."""
        try:
            return self._producer.flush(seconds)
        except (KafkaException, SystemError):
            # After a fatal error, the client raises from here while it calls the callbacks, and Python turns this into a
            # SystemError. The next step of the transaction raises the error itself.
            return 0

    def _step(self, call: Callable[[], object]) -> None:
        """Call one step of a transaction, with retries."""
        until = time.monotonic() + OUTAGE_TIMEOUT
        while True:
            try:
                call()
                return
            except KafkaException as problem:
                error = problem.args[0]
                # A step that timed out goes on inside the client: calling it again resumes it.
                if not error.retriable() and error.code() != KafkaError._TIMED_OUT:
                    self._open &= not error.fatal()  # after a fatal error, an abort is not possible
                    raise _failed(error) from None
                if time.monotonic() > until:
                    raise TopicError(
                        f"the broker did not answer for {OUTAGE_TIMEOUT:g} s ({error.str()}). Whether the last events were "
                        f"replayed is not known here; replay again once it is back: what was replayed is not repeated."
                    ) from None
                time.sleep(0.1)


def _failed(error: KafkaError) -> TopicError:
    if error.code() in FENCED_ERRORS:
        return TopicError(
            "another replay of this pipeline's dead letters has started, or the broker was away for longer than a transaction "
            "lasts (10 s), and this one ends. What it had replayed is marked and not repeated: run one at a time, and again."
        )
    advice = ADVICE.get(error.code(), "Look at the broker's log.")
    return TopicError(
        f"dead letters could not be replayed: {error.str().removesuffix('.')}. {advice} What was replayed before is marked: give "
        f"the same command again for the rest."
    )
