"""`millstream work`: runs one worker until a signal stops it."""

import argparse
import ctypes
import faulthandler
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client.exposition import generate_latest

from millstream.consumers.cli.arguments import metrics_host
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.log_lines import log_to_stderr
from millstream.consumers.errors import ClusterChanged, OffsetsPastEnd, ReadBelowCommitted, WorkerError
from millstream.consumers.observability.broker_watch import QUIET_TIMEOUT, BrokerWatch
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.observability.json_log import note
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.observability.totals import Totals
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.signals import stop_on_signals
from millstream.consumers.shadow.shadow_plan import live_shadows, why_left_out
from millstream.consumers.worker.build import build_worker
from millstream.consumers.worker.clients import largest_outputs
from millstream.consumers.worker.instance_id import take_instance_id
from millstream.consumers.worker.live import live
from millstream.consumers.worker.model_wait import fetch_models
from millstream.consumers.worker.plan import Plan, group_of, make_plan
from millstream.consumers.worker.worker import Worker
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.wording import counted
from millstream.topics.admin import Admin, refuse_unfit_broker, require, roles
from millstream.topics.broker_probe import BrokerProbe
from millstream.topics.group import refuse_foreign_group

if TYPE_CHECKING:
    from millstream.consumers.worker.rollout_following import Control

log = logging.getLogger("millstream")

# `--log-level` applies only to these loggers: the HTTP library of the schema registry would log each request at level info.
OWN_LOGGERS = ("millstream", "kafka")
# Threads take turns holding the GIL. With Python's default of 5 ms, a thread that wakes for a record may wait 5 ms for it.
SWITCH_INTERVAL = 0.0005  # seconds
# The garbage collector counts the objects of records, although it never frees one of them. With the default of 700, it scanned
# thousands of them again and again, which took a fifth of a worker's time.
COLLECT_AFTER = 100_000  # objects
# glibc's numbers of limits, and their values. By default, glibc soon gives the memory of a block of events back to the
# system. The next block then gets new memory. The system clears this first, page by page: up to a twelfth of a worker's CPU.
M_TRIM_THRESHOLD, KEPT_BYTES = -1, 1 << 28  # bytes of freed memory that are kept
M_MMAP_THRESHOLD, LARGEST_KEPT = -3, 1 << 25  # a larger array is given back in any case; glibc allows no more
# By default, each thread that allocates has a part of the memory of its own, an arena, so that threads don't wait for each other.
# What the threads of one arena have freed, the others can't use. With a single arena, they wait for each other: 8 % more CPU.
M_ARENA_MAX, ARENAS = -8, 2
# If a signal such as SIGSEGV ends the worker, Python writes there which of its lines ran.
STDERR = 2


WORKERS_TOPICS = {"input", "output", "dead letters"}
"""Roles of the topics without which a worker can't go on."""


def run(args: argparse.Namespace) -> int:
    """Run the worker; returns 0 if it drained: all results are written and committed. Else 1. Errors: see `cli.main`.

    With `--until-idle`, a stop before it is idle is a 1, too.
    """
    log_to_stderr(args.log_level, OWN_LOGGERS)
    _tune_process()
    host = metrics_host(args, args.metrics_port)
    pipeline = read_pipeline(args)
    admin = Admin(pipeline.client_config(), log.warning)  # it connects while the next steps run
    metrics = Metrics(pipeline.name)
    health = Health(pipeline.limits.stall_after)
    probe = BrokerProbe(pipeline.client_config(), [name for role, name in roles(pipeline) if role in WORKERS_TOPICS])
    watch = BrokerWatch(
        pipeline.kafka.bootstrap, probe, health, on_change=lambda lost: worker.fail(ClusterChanged(lost))
    )
    # The port is open before the start, so that probes show what the worker waits for.
    with _served(health, metrics, host, args.metrics_port):
        plan, control = _planned(pipeline, admin, health, metrics, dedicated=args.role == "shadow")
        instance_id = take_instance_id(args.instance_id, group=group_of(plan), bootstrap=pipeline.kafka.bootstrap)
        note(instance=instance_id.short_name)
        with live(health, pipeline.limits.batch_timeout):  # it runs the model once
            worker = build_worker(
                plan,
                health,
                metrics,
                largest_outputs=largest_outputs(plan, admin),
                lost_broker=watch.suspect,
                instance_id=instance_id.name,
                until_idle=args.until_idle,
                control=control,
            )
        del admin  # it would keep its connections and threads
        _log_start(instance_id.name, plan)
        with _totals_logged(metrics, plan), _loaded_objects_frozen():
            # Until the model is warm, a signal ends the process at once: a warm-up may take minutes.
            stoppable = partial(_stop_on_signals, worker, plan.pipeline.limits.drain_timeout)
            drained = _run_watched(worker, watch, probe, stoppable)
        instance_id.release()
    return _ended(drained=drained, too_early=args.until_idle and worker.stopped)


@contextmanager
def _served(health: Health, metrics: Metrics, host: str, port: int | None) -> Iterator[None]:
    """Serve metrics and probes meanwhile. `port`: None: don't."""
    if port is None:
        yield
        return
    server = HealthServer(health, metrics.registry, host, port)
    log.info("serving /metrics, /live and /ready on %s", server.address)
    try:
        yield
    finally:
        server.close()


def _planned(
    pipeline: Pipeline, admin: Admin, health: Health, metrics: Metrics, *, dedicated: bool
) -> tuple[Plan, "Control | None"]:
    """Check the cluster and the group, and load the models. Returns the plan, and the rollout to follow; None: there is none."""
    require(admin, pipeline)
    refuse_unfit_broker(admin, pipeline)
    control = None
    if pipeline.rollout is not None and not dedicated:
        # Imported here, because a plain worker starts sooner without it.
        from millstream.consumers.worker.rollout_following import read_rollout, with_baseline  # noqa: PLC0415

        control = read_rollout(pipeline, admin, Retry(threading.Event(), health, metrics))
        pipeline = with_baseline(pipeline, control.reader.record)
    models = fetch_models(pipeline, health, metrics, dedicated=dedicated)
    with live(health, pipeline.limits.batch_timeout):
        plan = make_plan(pipeline, dedicated=dedicated, models=models)
    for shadow in live_shadows(pipeline, plan.model.id):
        if shadow.dedicated is dedicated:
            log.warning("%s", why_left_out(pipeline, shadow))
    refuse_foreign_group(pipeline.client_config(), pipeline, group_of(plan))
    return plan, control


def _ended(*, drained: bool, too_early: bool) -> int:
    """Log how the worker ended; returns the exit code. `too_early`: a signal stopped it before it was idle."""
    log.info(
        "drained: all results are written and committed"
        if drained
        else "ended before all results were written and committed"
    )
    if too_early:
        log.info("stopped before it was idle: events may be left (--until-idle)")
    return 0 if drained and not too_early else 1


def _tune_process() -> None:
    """Set what holds for the whole process: see the constants."""
    faulthandler.enable(file=STDERR, all_threads=False)
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(COLLECT_AFTER)
    keep_freed_memory()


def _run_watched(worker: Worker, watch: BrokerWatch, probe: BrokerProbe, warmed_up: Callable[[], object]) -> bool:
    """See `Worker.run`. If a worker fails because the cluster lost data, the error says so, whichever client saw it first."""
    try:
        with watch:
            return worker.run(warmed_up)
    except ClusterChanged:
        raise
    except WorkerError as error:
        if probe.silent(QUIET_TIMEOUT) is None and (lost := probe.change()) is not None:
            raise ClusterChanged(lost) from error
        raise


def keep_freed_memory() -> None:
    """Let this process use freed memory again, instead of giving it back to the system."""
    with suppress(AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_ARENA_MAX, ARENAS)


def _log_start(instance_id: str, plan: Plan) -> None:
    log.info(
        "pid %d, instance ID %s, runs %s: %s on %s, with %s",
        os.getpid(),
        instance_id,
        plan.pipeline.name,
        plan.model.place,
        plan.executor.device,
        _events_of(plan),
    )


def _events_of(plan: Plan) -> str:
    if plan.reader is not None:
        return f"schema {plan.reader.name}, id {plan.reader.id}"
    checked = plan.pipeline.input.json_schema
    return "JSON without a schema" if checked is None else f"JSON Schema {checked}"


@contextmanager
def _totals_logged(metrics: Metrics, plan: Plan) -> Iterator[None]:
    """Log the totals once the worker has ended, also by an error."""
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        read_below = isinstance(failure, OffsetsPastEnd | ReadBelowCommitted)
        text = generate_latest(metrics.registry).decode()
        totals = Totals.of_metrics(text, predicts=not plan.dedicated, read_below=read_below)
        log.info("%s", totals)
        if (advice := totals.advice(plan.pipeline.named_in_log)) is not None:
            log.info("%s", advice)
        if failure is not None:
            log.info("the worker ended early, by an error: the totals count what was final until then")


@contextmanager
def _loaded_objects_frozen() -> Iterator[None]:
    """Spare the garbage collector the objects that are loaded so far: they stay, so it needn't scan them again."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # at the exit, the collector frees them: libraries such as torch's print their leaked objects there


def _stop_on_signals(worker: Worker, drain_timeout: float) -> None:
    def drain(name: str) -> None:
        if in_flight := worker.in_flight:
            log.info(
                "%s: draining: the worker finishes and commits its %s in flight, with the batch that runs, for at most "
                "%g s (limits.drain_timeout). A second %s stops it at once: the next worker then reads again what isn't done",
                name,
                counted(in_flight, "event"),
                drain_timeout,
                name,
            )
        else:
            log.info("%s: draining: the worker has no events in flight, and leaves its group", name)
        worker.stop()

    def stop_at_once(name: str) -> None:
        log.warning("%s again: stopping at once", name)
        worker.stop_at_once()

    stop_on_signals(drain, stop_at_once)
