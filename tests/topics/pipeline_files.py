"""Pipeline files that several tests start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from topics.errors import PipelineError
from topics.pipeline import Pipeline, load_pipeline

if TYPE_CHECKING:
    from pathlib import Path

SMALL = """\
name: small
kafka:
  bootstrap: 127.0.0.1:9092
input:
  topic: events
  format: json
  schema: event
output:
  topic: predictions
model:
  name: m
"""
WHOLE = """\
name: flights-delay
kafka:
  bootstrap: ${KAFKA_BOOTSTRAP:-127.0.0.1:9092}
  client:
    security.protocol: SASL_SSL
    socket.timeout.ms: 20000
    enable.ssl.certificate.verification: true
    sasl.username: {env: KAFKA_USER}
    sasl.password: {file: secrets/kafka-password}
group: flights
schemas:
  registry:
    url: https://registry.example:8081
    username: reader
    password: {env: REGISTRY_PASSWORD}
    ca: tls/ca.pem
input:
  topics: [flights-departures, flights-replays]
  format: avro
  schema: flight-departure
  event_id: id
  event_time: departed_at
  key: tail_number
  start: latest
output:
  topic: flights-predictions
  format: json
  carry_headers: []
dead_letters:
  topic: flights-rejects
model:
  name: flights-delay
  version: 3
  repository: ../models
  inputs: {features: [a, b], text: remark}
  device: cuda
  threads: 2
  allow_nan: true
batch:
  max_events: 64
  max_wait: 0ms
  max_bytes: 512KiB
delivery: exactly_once
commit_every: 50ms
membership: {protocol: classic, static: true}
limits:
  held_events: 128
  held_bytes: 1MiB
  drain_timeout: 1m
  stall_after: 2m
"""


def load(folder: Path, text: str, **environ: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return load_pipeline(path, environ)


def lines_of(folder: Path, text: str, **environ: str) -> list[str]:
    """The problems in the text, each from its line number on."""
    with pytest.raises(PipelineError) as caught:
        load(folder, text, **environ)
    prefix = f"{folder / 'pipeline.yaml'}:"
    found = str(caught.value).split("\n")
    assert len(found) == len(caught.value.problems)
    assert all(line.startswith(prefix) for line in found)
    return [line.removeprefix(prefix) for line in found]


def changed(old: str, new: str) -> str:
    assert SMALL.count(old) == 1, old
    return SMALL.replace(old, new)
