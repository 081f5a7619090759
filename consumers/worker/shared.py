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
    in_flight_bytes: (
        int  # in total: a quarter for records fetched ahead, a quarter for the producer, half for the events in flight
    )
    weight: RecordCost  # memory of a record in flight
    commit_every: float
    exactly_once: bool
    ordering: Ordering
    weights: Mapping[str, float] | None  # by input topic; None: no topic has a weight
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
    assignment: Assignment  # the assigned partitions, and how far each is processed
    guard: CrashGuard  # finds events that crash workers
    budget: InFlightBudget  # bounds the events in flight
    quotas: TopicQuotas | None  # bounds the waiting records of each topic; None: no weights
    answers: ResultQueue  # from the compute thread to the write thread
    ending: Ending


def shared_of(settings: Settings, guard: CrashGuard, health: Health, metrics: Metrics) -> Shared:
    """Create the parts that the stages of a worker share."""
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
