"""`millstream autopilot`: moves a pipeline's rollout on, and back, until a signal stops it."""

import argparse
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from millstream.consumers.autopilot.autopilot import Autopilot
from millstream.consumers.autopilot.candidate_watch import CandidateWatch
from millstream.consumers.autopilot.control import Control
from millstream.consumers.autopilot.metrics import AutopilotMetrics
from millstream.consumers.autopilot.names import group_of
from millstream.consumers.autopilot.report import Report
from millstream.consumers.autopilot.run import look_interval, run_until_stopped
from millstream.consumers.autopilot.shadow_watch import ShadowWatch
from millstream.consumers.autopilot.starts import Starts
from millstream.consumers.autopilot.step_reading import StepReading
from millstream.consumers.autopilot.version_check import VersionCheck
from millstream.consumers.autopilot.webhook import WebhookThread
from millstream.consumers.autopilot.worker_watch import WorkerWatch
from millstream.consumers.cli.arguments import metrics_host
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.log_lines import log_to_stderr
from millstream.consumers.cli.rollout_start import entry_of
from millstream.consumers.control.topic import open_reader, open_writer, require_control_topic, rollout_of, topic_of
from millstream.consumers.evaluation.settings import shadow_record
from millstream.consumers.evaluation.step_evaluator import StepEvaluator
from millstream.consumers.evaluation.topic import FiguresPublisher
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.broker_watch import BrokerWatch
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.resilience.signals import stop_on_signals
from millstream.consumers.rollout.changes import Entry
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.steps import Steps
from millstream.consumers.schema_store import open_store
from millstream.consumers.serving.wanted_now import wanted_now
from millstream.pipeline.client_trial import membership
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.rollout_section import Rollout
from millstream.topics.admin import Admin, require
from millstream.topics.broker_probe import BrokerProbe
from millstream.topics.turn import Turn

log = logging.getLogger("millstream")

OWN_LOGGERS = ("millstream",)
STALL_AFTER = 120.0  # seconds without a turn of the loop after which the process is not live; one look may take some


def run(args: argparse.Namespace) -> int:
    """Run until a signal stops it."""
    log_to_stderr(args.log_level, OWN_LOGGERS)
    stop = threading.Event()
    stop_on_signals(partial(_stop, stop), _stop_at_once)
    host = metrics_host(args, args.metrics_port)
    pipeline = read_pipeline(args)
    rollout = rollout_of(pipeline)
    metrics, health = AutopilotMetrics(pipeline.name), Health(STALL_AFTER)
    with ExitStack() as stack:
        if args.metrics_port is not None:
            server = HealthServer(health, metrics.registry, host, args.metrics_port)
            stack.callback(server.close)
            log.info("serving /metrics, /live and /ready on %s", server.address)
        admin = Admin(pipeline.client_config())
        require(admin, pipeline, but={"labels"})  # without them, it still rolls back, and holds the rest
        require_control_topic(admin, pipeline)
        del admin  # it would keep its connections and threads
        webhooks = None if rollout.webhook is None else stack.enter_context(WebhookThread(rollout.webhook, metrics))
        report = Report(metrics, webhooks)
        autopilot = build(pipeline, rollout, report, stack)
        stack.enter_context(BrokerWatch(pipeline.kafka.bootstrap, BrokerProbe(pipeline.client_config()), health))
        turn = Turn(pipeline.client_config(), group_of(pipeline), topic_of(pipeline), membership(pipeline))
        stack.enter_context(turn)
        every = look_interval(rollout)
        log.info("autopilot of %s: %s, mode %s, looks every %g s", pipeline.name, rollout.strategy, rollout.mode, every)
        run_until_stopped(autopilot, turn, report, health, every=every, stop=stop)
    log.info("stopped: all its state is on the topics %s and %s", rollout.topic, rollout.evaluations)
    return 0


def build(pipeline: Pipeline, rollout: Rollout, report: Report, stack: ExitStack) -> Autopilot:
    """Connect all parts. `stack` closes them."""
    store = open_store(pipeline)
    reader = stack.enter_context(open_reader(pipeline, store, lambda said: log.warning("%s", said)))
    reading = partial(StepReading, partial(StepEvaluator, pipeline), now_ms, WorkerWatch(pipeline).absence)
    candidate = None
    if rollout.candidate is not None:
        find = partial(_candidate, PipelineModels(pipeline), rollout.candidate)
        candidate = stack.enter_context(CandidateWatch(find, pipeline.model.poll_interval))
    shadows = None
    if rollout.start_after_shadow is not None:
        shadows = ShadowWatch(
            partial(_shadows, pipeline),
            reading,
            least_ms=round(rollout.start_after_shadow * 1000),
            least_labels=rollout.least_labels,
        )
    check = VersionCheck(partial(_entry, pipeline))
    autopilot = Autopilot(
        pipeline,
        Control(reader, lambda own: open_writer(pipeline, store, own)),
        reading(),
        FiguresPublisher(pipeline, store),
        Starts(pipeline, check.of, candidate=candidate, shadows=shadows),
        report,
        now_ms,
    )
    stack.callback(autopilot.close)
    return autopilot


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _candidate(models: PipelineModels, named: int | str) -> int:
    """The version that `rollout.candidate` names now. Raises NotServed."""
    if isinstance(named, int):
        return named
    place = models.pipeline.at("rollout", "candidate")
    return wanted_now(lambda: models.source, models.name, named, place).version


def _entry(pipeline: Pipeline, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry]:
    return entry_of(pipeline, current, argparse.Namespace(strategy=None, versions=[version], share=None))


def _shadows(pipeline: Pipeline, baseline: int, since: int) -> Sequence[RolloutRecord]:
    """A record for each shadow that is a version of the pipeline's own model."""
    return [
        shadow_record(pipeline, shadow, baseline=baseline, since=since)
        for shadow in pipeline.shadows
        if pipeline.shadow_model(shadow)[0] == pipeline.model.name
    ]


def _stop(stop: threading.Event, name: str) -> None:
    log.info("%s: stops after this look; a second one stops at once", name)
    stop.set()


def _stop_at_once(name: str) -> None:
    log.warning("%s again: stops at once", name)
    raise SystemExit(1)
