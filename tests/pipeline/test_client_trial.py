"""The settings of a worker's group membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.client_trial import client_refusals, membership
from tests.pipeline.pipeline_files import SMALL, lines_of, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("more", "client", "expected"),
    [
        ("", "{}", "65000"),
        ("membership: {protocol: consumer}", "{}", "65000"),
        ("limits: {drain_timeout: 1ms}", "{}", "45001"),
        ("limits: {drain_timeout: 10m}", "{}", "645000"),
        ("limits: {drain_timeout: 24h}", "{}", "86400000"),
        ("", "{session.timeout.ms: 90000}", "90000"),
        ("", "{session.timeout.ms: 9000}", "65000"),
    ],
)
def test_a_rebalance_waits_for_a_workers_drain_and_the_client_accepts_the_time(
    tmp_path: Path, more: str, client: str, expected: str
) -> None:
    text = SMALL.replace("127.0.0.1:9092\n", f"127.0.0.1:9092\n  client: {client}\n") + more
    pipeline = load(tmp_path, text)
    assert membership(pipeline)["max.poll.interval.ms"] == expected
    assert list(client_refusals(pipeline)) == []


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_linger_that_some_producer_of_a_worker_would_refuse_is_blamed(tmp_path: Path, delivery: str) -> None:
    text = (
        SMALL.replace("127.0.0.1:9092\n", "127.0.0.1:9092\n  client: {linger.ms: 60000}\n") + f"delivery: {delivery}\n"
    )
    [line] = lines_of(tmp_path, text)
    assert "kafka.client.linger.ms: " in line
    assert "must be greater than `linger.ms`" in line
