"""What a worker is made of."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.decode.decoder import BlockDecoder
from millstream.consumers.execute.inflight import Ordering
from millstream.consumers.flow.held import Weight
from millstream.consumers.record_types import Partition
from millstream.consumers.shadow.shadow_lane import ShadowLane
from millstream.consumers.sink.result_sink import Sink
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.kafka_source import Source
from millstream.inference.executors.interface import Executor


@dataclass(frozen=True, slots=True)
class Settings:
    """The worker's limits; times in seconds."""

    batch: Limits
    held_events: int
    held_bytes: int  # in all: a quarter of it fetched ahead, a quarter in the producer
    weight: Weight  # of a held record
    commit_every: float
    exactly_once: bool
    ordering: Ordering
    weights: Mapping[str, float] | None  # by input topic, where these have any
    allow_nan_outputs: bool
    batch_timeout: float  # for one micro-batch in the model
    drain_timeout: float
    until_idle: bool


@dataclass(frozen=True, slots=True)
class Stages:
    """What the worker is put together from."""

    decoder: BlockDecoder
    executors: Sequence[Executor]  # copies of one model
    in_flight: int  # micro-batches that each runs at a time
    ahead: int  # micro-batches that may wait for them
    guard: CrashGuard  # told by the source, asked by the loop
    source: Callable[[Callable[[list[Partition]], object]], Source]  # takes what to call before partitions go
    sink: Callable[[Source, threading.Event], Sink]  # takes the source, and when to give up waiting
    shadows: Callable[[Source, Callable[[], bool]], ShadowLane] | None  # takes what says that the primary is busy
