"""What the stages of a worker share."""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.events import ResultQueue
from millstream.consumers.execute.reorder_buffer import Ordering
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.in_flight import InFlightBudget, RecordCost, TopicQuotas
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker.ending import Ending


@dataclass(frozen=True, slots=True)
class Settings:
    """The worker's limits; times in seconds."""

    batch: Limits
    in_flight_events: int
    in_flight_bytes: int  # in all: a quarter of it fetched ahead, a quarter in the producer
    weight: RecordCost  # of a record in flight
    commit_every: float
    exactly_once: bool
    ordering: Ordering
    weights: Mapping[str, float] | None  # by input topic, where these have any
    allow_nan_outputs: bool
    batch_timeout: float  # for one micro-batch in the model
    drain_timeout: float
    until_idle: bool


@dataclass(frozen=True, slots=True)
class Shared:
    """What more than one stage needs."""

    settings: Settings
    health: Health
    metrics: Metrics
    assignment: Assignment  # which partitions are ours, and how far each is
    guard: CrashGuard  # told by the source, asked by the loop
    budget: InFlightBudget  # bounds what was read and is not yet delivered
    quotas: TopicQuotas | None  # the same by topic, where topics have weights
    answers: ResultQueue  # from the computing stage to the writing one
    ending: Ending


def shared_of(settings: Settings, guard: CrashGuard, health: Health, metrics: Metrics) -> Shared:
    """Make what the stages of a worker share."""
    answers: ResultQueue = ResultQueue()
    return Shared(
        settings,
        health,
        metrics,
        assignment=Assignment(),
        guard=guard,
        budget=InFlightBudget(
            settings.in_flight_events, settings.in_flight_bytes // 2, settings.weight, settings.batch.max_events
        ),
        quotas=TopicQuotas(settings.weights, settings.in_flight_events // 2) if settings.weights else None,
        answers=answers,
        ending=Ending(answers),
    )
