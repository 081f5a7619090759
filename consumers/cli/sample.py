"""Reads sample events from a file or a topic, and skips what is no event."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.consumers.cli.event_file import json_lines, json_row, opened, place
from millstream.consumers.errors import WorkerError
from millstream.schemas.wire import looks_like_avro, without_head
from millstream.schemas.wording import counted
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.records import ReadRecord, RecordReader

SAMPLE_SECONDS = 15.0  # most time to wait for the events of a topic
_MAX_HEADER = 100_000  # characters of a CSV file's header line that are read
QUIET_SECONDS = 2.0  # without further records, after which no more are expected


@dataclass(slots=True)
class Sample:
    """Events, and what was no event."""

    limit: int  # most events that pass
    passes: Callable[[Mapping[str, Any]], bool]  # whether an event passes the filter
    events: list[Mapping[str, Any]] = field(default_factory=list)  # those that pass, and at most as many others
    passed: int = 0  # of these, events that pass
    seen: int = 0  # events, also those that are not kept
    skipped: int = 0  # lines or records that no worker could read
    avro: int = 0  # of these, records that look like Avro
    tombstones: int = 0  # records without a value
    first_skipped: str = ""  # where the first of them is, and why it was skipped

    @property
    def is_full(self) -> bool:
        """Whether there may be more events behind these."""
        return self.passed >= self.limit

    def add(self, row: Mapping[str, Any] | str, where: str) -> None:
        """Add an event; or skip it if it is none (then the text says why), or if no worker could read it."""
        if not (reason := row if isinstance(row, str) else _unreadable(row)):
            assert not isinstance(row, str)
            self._keep(row)
            return
        self.skipped += 1
        self.first_skipped = self.first_skipped or f"{where}: {reason}"

    def _keep(self, event: Mapping[str, Any]) -> None:
        self.seen += 1
        if self.passes(event):
            self.passed += 1
        elif len(self.events) - self.passed >= self.limit:
            return
        self.events.append(event)


def of_file(name: str, limit: int, passes: Callable[[Mapping[str, Any]], bool]) -> Sample:
    """The events of a file of JSON lines, up to `limit` that pass. Raises WorkerError if there are none."""
    if name.lower().endswith(".csv"):
        raise WorkerError(
            f"{place(name)}: expected events as JSON, one object per line, found a CSV file, whose values have no types. Convert "
            f"it, for example with pandas: read_csv(FILE{_csv_options(Path(name))}).to_json('events.jsonl', orient='records', "
            "lines=True)."
        )
    sample = Sample(limit, passes)
    with opened(name) as file:
        for line in json_lines(file, name):
            sample.add(line.row, f"{place(name)}:{line.number}")
            if sample.is_full:
                break
    if not sample.events:
        raise WorkerError(
            _all_skipped(sample)
            or f"{place(name)}: expected events, one JSON object per line, found none. Put some of your events there."
        )
    return sample


def _csv_options(path: Path) -> str:
    """What pandas needs to read the file; empty: only its name, or the file can't be read."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            header = file.readline(_MAX_HEADER)
    except OSError:
        return ""
    return ", sep=';', decimal=','" if ";" in header and "," not in header else ""


def of_topic(topic: str, limit: int, passes: Callable[[Mapping[str, Any]], bool]) -> Sample:
    """The events of a topic, up to `limit` that pass. Raises WorkerError if there are none, or no such topic."""
    # An empty variable counts as unset, as in a pipeline file's `${KAFKA_BOOTSTRAP:-...}`.
    client = {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP") or "127.0.0.1:9092"}
    bootstrap = client["bootstrap.servers"]
    sample = Sample(limit, passes)
    until, read = time.monotonic() + SAMPLE_SECONDS, 0
    try:
        with RecordReader(client, (topic,), from_beginning=True) as reader:
            while not sample.is_full and time.monotonic() < until and (read < reader.existing[topic] or not read):
                records = reader.read(limit - sample.passed, QUIET_SECONDS)
                for record in records:
                    _add_record(sample, record)
                read += len(records)
                if (sample.events or sample.skipped) and not records:  # some offsets are no records
                    break
    except BrokerUnreachableError as error:
        raise WorkerError(
            f"--sample-topic {topic}: {error.what} Set the environment variable KAFKA_BOOTSTRAP to your broker, or use "
            "`--sample FILE`, also for a broker that needs TLS or a password."
        ) from None
    except TopicError:
        raise WorkerError(
            f"--sample-topic {topic}: there is no such topic on {bootstrap}, or it can't be read. Name another one, or use "
            "`--sample FILE`. If it is on another broker, set the environment variable KAFKA_BOOTSTRAP."
        ) from None
    if not sample.events:
        raise WorkerError(_all_skipped(sample) or f"topic {topic}: {_none_came(sample)}. Use `--sample FILE`.")
    if sample.skipped > len(sample.events):
        raise WorkerError(
            f"topic {topic}: expected events as JSON, but {of_skipped(sample)}. A pipeline for the other "
            f"{counted(len(sample.events), 'record')} would make dead letters of them. Name another topic, or put typical events "
            f"into a file (`--sample FILE`). The first one that is no event: {sample.first_skipped}"
        )
    return sample


def of_skipped(sample: Sample) -> str:
    """How many records are no events, and what they look like."""
    are = (
        "1 record of the sample is no event"
        if sample.skipped == 1
        else f"{sample.skipped:,} records of the sample are no events"
    )
    look = "looks" if sample.avro == 1 else "look"
    return f"{are} ({sample.avro:,} {look} like a registry's Avro: the first byte is 0)" if sample.avro else are


def _add_record(sample: Sample, record: ReadRecord) -> None:
    if record.value is None:
        sample.tombstones += 1
        return
    is_avro = looks_like_avro(record.value)
    sample.avro += is_avro
    row: Mapping[str, Any] | str = (
        "expected JSON, found what looks like Avro. If all events are Avro, start from the example (`millstream init DIR`), and "
        "name the events' schema in its pipeline file (`millstream docs registry`)."
        if is_avro
        else json_row(without_head(record.value).decode(errors="surrogateescape"), in_file=False)
    )
    sample.add(row, f"topic {record.topic}, partition {record.partition}, offset {record.offset}")


def _all_skipped(sample: Sample) -> str:
    """Why there is no event; empty if nothing was skipped."""
    if sample.skipped < 2:
        return sample.first_skipped
    first = sample.first_skipped.removesuffix(".")
    return f"{first}. None of the {sample.skipped} records that were read is an event. This is the first one."


def _none_came(sample: Sample) -> str:
    """What came from a topic in place of events."""
    if not sample.tombstones:
        return f"no events came in {SAMPLE_SECONDS:g} s"
    were = "1 record was read, without a value (a tombstone)"
    return (
        were if sample.tombstones == 1 else f"{sample.tombstones:,} records were read, all without a value (tombstones)"
    )


def _unreadable(row: Mapping[str, Any]) -> str:
    """Why no worker could read the event; empty if one could."""
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        return "expected JSON, found NaN, Infinity or a number that is too large for a double. Write null instead."
    return ""
