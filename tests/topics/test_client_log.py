"""Which lines of the Kafka clients a reader of the log sees, and how loud."""

from __future__ import annotations

import logging

import pytest

from millstream.topics.client_log import client_log

FENCED = "[rdkafka#producer-8] [thrd:main]: Fatal transaction error: Local: This instance has been fenced by a newer instance"
NOT_YET = "Failed to acquire idempotence PID from broker b:9092/1: Broker: Coordinator load in progress"


@pytest.mark.parametrize(
    ("level", "line", "shown"),
    [
        (logging.CRITICAL, f"TXNERR {FENCED}", None),
        (logging.CRITICAL, f"FATAL {FENCED}", None),
        (logging.WARNING, f"GETPID [rdkafka#producer-8] [thrd:main]: {NOT_YET}: retrying", logging.INFO),
        (logging.ERROR, f"GETPID [rdkafka#producer-8] [thrd:main]: {NOT_YET}", logging.ERROR),
        (
            logging.WARNING,
            "METADATAUPDATE [rdkafka#producer-5] [thrd:main]: Partition t[5]: new leader-1 not found in cache",
            None,
        ),
        (logging.ERROR, "FAIL [rdkafka#producer-8] [thrd:b:9092]: connect failed", None),
    ],
)
def test_lines_that_alarm_without_need_are_lowered(
    caplog: pytest.LogCaptureFixture, level: int, line: str, shown: int | None
) -> None:
    log = client_log("producer")
    with caplog.at_level(logging.INFO, "kafka.producer"):
        log.log(level, "%s %s", *line.split(" ", 1))
    assert [record.levelno for record in caplog.records] == ([] if shown is None else [shown])
    assert all(line in record.getMessage() for record in caplog.records)


def test_all_lines_are_there_for_who_asks_for_them(caplog: pytest.LogCaptureFixture) -> None:
    log = client_log("producer")
    with caplog.at_level(logging.DEBUG, "kafka.producer"):
        log.critical("TXNERR %s", FENCED)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("DEBUG", f"TXNERR {FENCED}")]


def test_reset_is_told_with_its_possible_causes(caplog: pytest.LogCaptureFixture) -> None:
    log = client_log("consumer")
    with caplog.at_level(logging.INFO, "kafka.consumer"):
        log.warning(
            "OFFSET [rdkafka#consumer-1] [thrd:main]: in [3]: offset reset (at offset 90 (leader epoch 0), broker 1) to offset "
            "BEGINNING (leader epoch -1): fetch failed due to requested offset not available on the broker: Broker: Offset out "
            "of range"
        )
    [said] = caplog.messages
    assert said.startswith(
        "in/3: the broker does not have offset 90, at which to read on: it is past the partition's end, "
    )
