"""`millstream compare`: runs the comparison job until a signal stops it, or shows its results so far with a verdict."""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from millstream.consumers.cli.arguments import metrics_host
from millstream.consumers.cli.extras import needs_comparison
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.log_lines import log_to_stderr
from millstream.consumers.comparison.errors import ComparisonError
from millstream.consumers.comparison.metrics import ComparisonMetrics
from millstream.consumers.comparison.names import app_name, own_topics
from millstream.consumers.comparison.show import as_json, judged, read_results, results, time_text
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.broker_watch import BrokerWatch
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.rollout.rounded import ago
from millstream.consumers.schema_store import open_store
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.consumers.shadow.compared_output import (
    answers_to_blank_event,
    check_compared_answers,
    check_compared_output,
)
from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import Admin, ensure, require, states
from millstream.topics.broker_probe import BrokerProbe
from millstream.topics.permissions import READ, WRITE, Needed, require_permissions

log = logging.getLogger("millstream")

OWN_LOGGERS = ("millstream",)
# Faust and its libraries log every step. If one of them raises an error, the job ends and logs the error in one line.
QUIET_LOGGERS = ("faust", "mode", "aiokafka", "asyncio")
# Faust's consumer has a thread of its own. With Python's default of 5 ms, it waits up to 5 ms for each of its turns.
SWITCH_INTERVAL = 0.0005  # seconds
NOT_BETTER, UNDECIDED = 4, 5
"""Exit codes of --show, besides 0: a shadow is better. They differ from those of failures, which `millstream --help` lists."""
PIPED_WIDTH = 1000  # columns of output that doesn't go to a terminal: no line is wrapped


def run(args: argparse.Namespace) -> int:
    """Run the job, or show its results."""
    if args.json and not args.show:
        args.parser.error("--json is for the results: add --show")
    pipeline = read_pipeline(args)
    if not pipeline.shadows:
        raise ComparisonError(
            f"{pipeline.path}: there are no shadows to compare. Write `shadows:`, and under it, for example, `- version: 2`."
        )
    if args.show:
        return _show(pipeline, json=args.json)
    _set_up_log(args.log_level)
    _check_outputs(pipeline)
    sys.setswitchinterval(SWITCH_INTERVAL)
    metrics = ComparisonMetrics(pipeline.name)
    health = Health(
        max(pipeline.limits.stall_after, 3 * pipeline.comparison.update_every), loop="the comparison job's loop"
    )
    host = metrics_host(args, args.metrics_port)
    server = None
    if args.metrics_port is not None:
        server = HealthServer(health, metrics.registry, host, args.metrics_port)
        log.info("serving /metrics, /live and /ready on %s", server.address)
    try:
        _compare(pipeline, metrics, health)
    finally:
        metrics.warnings.say_all()
        if server is not None:
            server.close()
    log.info(
        "stopped: all its state is in Kafka. The next job goes on from there, and writes the results that are still due"
    )
    return 0


def _check_outputs(pipeline: Pipeline) -> None:
    """Check `comparison.output` and `comparison.item`, as far as the models are on this machine. The job itself needs none.

    Raises:
        PlanError: the models lack the output or the item.
    """
    models = PipelineModels(pipeline)
    try:
        primary = models.primary()
        shadows = [models.shadow(shadow) for shadow in pipeline.shadows]
    except (ModelConfigError, SourceUnavailable):
        return
    check_compared_output(pipeline, [primary, *shadows])
    if answers := answers_to_blank_event([primary, *shadows]):
        said = check_compared_answers(pipeline, [primary, *shadows][: len(answers)], answers)
        log.info("compared: %s", said)


def _show(pipeline: Pipeline, *, json: bool) -> int:
    """Print the results; returns the exit code that tells the verdict: 0 if any shadow is better."""
    rows = read_results(pipeline, open_store(pipeline))
    shadows = judged(pipeline, rows)
    if json:
        for each in shadows:
            print(as_json(each))
    else:
        console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
        if rows:
            console.print(_age(rows), soft_wrap=True)
        for part in results(pipeline, rows, shadows):
            # A sentence is one line, however long: a command in it that is broken over two lines can't be copied.
            console.print(part, soft_wrap=isinstance(part, Text))
    outcomes = {each.verdict.outcome for each in shadows}
    if "better" in outcomes:
        return 0
    return UNDECIDED if "not decided yet" in outcomes else NOT_BETTER


def _age(rows: Sequence[dict[str, Any]]) -> str:
    """When the job last wrote a result. It writes only those that have changed."""
    newest = max(row["updated_at"] for row in rows)
    return f"the results last changed at {time_text(newest)} UTC, {ago(time.time() * 1000 - newest)}"


def _compare(pipeline: Pipeline, metrics: ComparisonMetrics, health: Health) -> None:
    try:
        from millstream.consumers.comparison.app import ComparisonApp  # noqa: PLC0415  (Faust is an extra)
        from millstream.consumers.comparison.run import run_until_stopped  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ComparisonError(needs_comparison("millstream compare", error)) from None
    admin = Admin(pipeline.client_config())
    require(admin, pipeline)
    [topic] = states(admin, [("comparisons", pipeline.comparison.topic)])
    assert topic.partitions is not None  # `require` checked that the topic exists
    replication = topic.replication_factor or 1
    ensure(admin, own_topics(pipeline), partitions=topic.partitions, replication=replication)
    require_permissions(admin, pipeline, _needed(pipeline), app_name(pipeline))
    del admin  # it would keep its connections and threads
    if pipeline.labels is None:
        log.info(
            "the pipeline file has no `labels`: the job compares the models' results, but can't tell which are right"
        )
    with tempfile.TemporaryDirectory(prefix="millstream-compare-") as folder:
        app = ComparisonApp(
            pipeline,
            open_store(pipeline),
            partitions=topic.partitions,
            replication=replication,
            folder=Path(folder),
            classes=compared_classes_of(pipeline),
            metrics=metrics,
            health=health,
        )
        models = [pipeline.shadow_model(shadow) for shadow in pipeline.shadows]
        shadows = ", ".join(f"{name} version {version}" for name, version in models)
        version = pipeline.model.version
        named = f"`{version}`" if isinstance(version, str) else version  # `latest` or an alias; a number
        log.info(
            "pipeline %s: comparing the primary %s%s with the shadow%s %s",
            pipeline.name, pipeline.model.name, "" if version is None else f" version {named}",
            "" if len(models) == 1 else "s", shadows,
        )  # fmt: skip
        with BrokerWatch(pipeline.kafka.bootstrap, BrokerProbe(pipeline.client_config()), health):
            run_until_stopped(app.faust, health)


def _needed(pipeline: Pipeline) -> Needed:
    """What the job does with the pipeline's topics and its own."""
    needed = {name: [READ, WRITE] for name in (pipeline.comparison.evaluations, *own_topics(pipeline))}
    read = [pipeline.comparison.topic, *([] if pipeline.labels is None else [pipeline.labels.topic])]
    return needed | {name: [READ] for name in read}


def _set_up_log(level: str) -> None:
    log_to_stderr(level, OWN_LOGGERS)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
