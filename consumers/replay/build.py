"""Creates the worker of a replay: the stages are those of every worker, with another source and another sink."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, get_args

from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.replay.folder import left
from millstream.consumers.replay.range_source import RangeSource
from millstream.consumers.replay.row_sink import RowSink
from millstream.consumers.sink.result_sink import Sink
from millstream.consumers.sink.transactions import ExactlyOnce
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker.build import connect, serving_of
from millstream.consumers.worker.clients import producer_settings
from millstream.consumers.worker.plan import outputs_of, settings_of
from millstream.consumers.worker.shared import shared_of
from millstream.pipeline.sections import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.consumers.replay.answers import Answering
    from millstream.consumers.replay.folder import About, ReplayFolder
    from millstream.consumers.source.range_reader import RangeReader
    from millstream.consumers.worker.plan import Plan
    from millstream.consumers.worker.shared import Shared
    from millstream.consumers.worker.worker import Worker

VARIANT = "replay"
"""The variant that predictions of a replay name."""


class Running(NamedTuple):
    """The parts of a replay that its caller needs."""

    worker: Worker
    source: RangeSource
    sink: RowSink


def build_replay(
    plan: Plan,
    about: About,
    folder: ReplayFolder,
    answering: Answering,
    reader: RangeReader,
    *,
    rate: float | None,
    limits: Mapping[str, int],
    on_turn: Callable[[int, RowSink], object],
) -> Running:
    """Create the worker of a replay.

    Args:
        plan: the pipeline as it is replayed (`as_replayed`), loaded and checked.
        about: what is to be read and written.
        folder: stores what was answered.
        answering: turns outputs into rows.
        reader: reads the events.
        rate: events per second; None: as fast as possible.
        limits: bytes of the largest record that each output topic accepts; empty: predictions go nowhere.
        on_turn: gets the number of records read, and the sink, about once per read.
    """
    pipeline = plan.pipeline
    guard = CrashGuard(pipeline.limits.crash_attempts, span=pipeline.batch.max_events)
    metrics = Metrics(pipeline.name)
    shared = shared_of(settings_of(plan, until_idle=True), guard, Health(pipeline.limits.stall_after), metrics)
    settle = partial(_settle, about, folder, reader)
    sink = RowSink(
        folder,
        answering,
        topic=_topic(plan, about, shared, limits) if limits else None,
        assignment=shared.assignment,
        on_start=settle,
    )
    source = RangeSource(
        reader,
        lambda: left(about, sink.stored),
        assignment=shared.assignment,
        rate=rate,
        on_turn=lambda read: on_turn(read, sink),
    )
    worker = connect(shared, source=source, decoder=plan.decoder, serving=serving_of(plan), sink=sink, shadows=None)
    return Running(worker, source, sink)


def _topic(plan: Plan, about: About, shared: Shared, limits: Mapping[str, int]) -> Sink:
    """Writes the predictions, and no dead letters: the replay counts them."""
    outputs = outputs_of(plan, limits, variant=VARIANT)
    letters = replace(outputs.dead_letters, skip=frozenset(get_args(Reason)))
    delivery = ExactlyOnce(
        producer_settings(plan, limits),
        transactional_id=about.group,
        assignment=shared.assignment,
        abandon=shared.ending.abandon,
        metrics=shared.metrics,
    )
    return Sink(delivery, replace(outputs, dead_letters=letters), assignment=shared.assignment, metrics=shared.metrics)


def _settle(about: About, folder: ReplayFolder, reader: RangeReader) -> None:
    """Decide on a checkpoint that an earlier run left pending. Raises WorkerError: nobody can tell any more."""
    pending = folder.pending()
    if pending is None:
        return
    committed = reader.committed(list(pending.offsets)) if about.output is not None else {}
    if about.output is not None and folder.progress().chunks and max(committed.values(), default=-1) < 0:
        raise WorkerError(
            f"the offsets of group {about.group} are gone, so it is not known whether the last predictions are in "
            f"{about.output}: the replay stood still for longer than Kafka keeps offsets. Begin anew with another --output."
        )
    folder.settle(committed)
