"""Pipeline files that several tests start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline

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
    socket.timeout.ms: 8000
    enable.ssl.certificate.verification: true
    sasl.mechanism: PLAIN
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
  filter: [kind == order, "version in [2, 3]"]
  event_id: id
  event_time: departed_at
  event_time_format: milliseconds
  key: tail_number
  start: latest
  max_age: 1h
  deadline_header: deadline
  weights: {flights-departures: 5}
output:
  topic: flights-predictions
  format: json
  carry_headers: []
  include: [id]
dead_letters:
  topic: flights-rejects
model:
  name: flights-delay
  version: 3
  repository: ../models
  cache: cache
  cache_size: 2GiB
  poll_interval: 10s
  inputs: {features: [a, b], text: remark}
  device: cuda
  trust: true
  threads: 2
  allow_nan: true
  allow_nan_outputs: true
  concurrent_batches: 2
  instances: 3
  gpu_memory: 3GiB
  engine_cache: ../engines
feature_store:
  type: redis
  url: rediss://store.example:6380/2
  username: reader
  password: {env: REGISTRY_PASSWORD}
  ca: tls/ca.pem
  timeout: 20ms
  on_outage: missing
  lookups:
    - name: plane
      key: "plane:{tail_number}"
      value: json
      updated: at
      updated_format: milliseconds
      max_age: 1h
      include_age: true
batch:
  max_events: 64
  max_wait: 0ms
  target_p99: 80ms
  max_bytes: 512KiB
  cost: remark
  max_cost: 4000
delivery: exactly_once
ordering: key
commit_every: 50ms
membership: {protocol: classic, static: true}
shadows:
  - {version: 4, name: candidate, model: other, sample_rate: 0.25, dedicated: true, max_load: 0.3}
comparison:
  topic: flights-compared
  evaluations: flights-evaluated
  output: p
  item: 1
  task: regression
  threshold: 0.4
  tolerance: 0.5
  window: 15m
  update_every: 5s
  max_events: 5000
labels:
  topic: flights-arrivals
  format: json
  schema: flight-arrival
  event_id: id
  value: late
  early: 5m
  wait: 6h
rollout:
  strategy: canary
  candidate: latest
  steps: [2, 10%, 50%]
  least_share: 5%
  discount: 0.9
  bake: 5m
  least_labels: 100
  longest: 12h
  watch: 30m
  on_breach: pause
  mode: advise
  approve: [50%, 100]
  maturity: 2h
  level: 0.05
  metrics:
    absolute_error: {margin: 0.5, minimum_effect: 0.1, segment_margin: 2, bound: 100}
    squared_error: {margin: 3, minimum_effect: 0.2, segment_margin: 9, bound: 900}
    reward: {field: revenue, better: lower, margin: 4, minimum_effect: 0.3, segment_margin: 8, deviation: 20}
    errors: {margin: 0.001}
    dead_letters: {margin: 0.002}
    nan: {margin: 0.003}
    latency: {quantile: 0.99, at_most: 1.2}
    score_drift: {at_most: 0.3}
    input_drift: {at_most: 0.2, fields: [id], reference: 12h}
  segments: [id]
  override_fields: [id]
  topic: flights-control
  evaluations: flights-judged
  max_events: 50000
  webhook: {url: https://hooks.example/rollouts, headers: {authorization: {env: REGISTRY_PASSWORD}}}
  start_after_shadow: 2h
on_error:
  stop: [undecodable, unknown_schema, schema_incompatible, unfit, model_rejected, nan_output, prediction_too_large, crashed]
  skip: [expired]
limits:
  batch_timeout: 30s
  crash_attempts: 5
  in_flight_events: 128
  in_flight_bytes: 4MiB
  drain_timeout: 1m
  stall_after: 2m
scaling: {min: 2, max: 8, catch_up: 10s, scale_down_after: 1m}
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
