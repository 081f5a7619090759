"""`millstream compare`: the comparison job, until it is told to stop; or its results so far."""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from millstream.consumers.cli.arguments import add_metrics_host, add_pipeline, metrics_host, port_number, read_pipeline
from millstream.consumers.comparison.errors import ComparisonError
from millstream.consumers.comparison.metrics import ComparisonMetrics
from millstream.consumers.comparison.names import own_topics
from millstream.consumers.comparison.show import results
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.schema_store import open_store
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ensure, require, states

log = logging.getLogger("millstream")

OWN_LOGGERS = ("millstream",)
# What Faust and its parts say of each step is no news, and an error of theirs ends the job, which says it in one line.
QUIET_LOGGERS = ("faust", "mode", "aiokafka", "asyncio")
# Faust's consumer has a thread of its own; at the default of 5 ms it waits as long for each of its turns.
SWITCH_INTERVAL = 0.0005  # seconds
PIPED_WIDTH = 80  # columns of output that is no terminal's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--show", action="store_true", help="print the results so far, and end")
    parser.add_argument(
        "--metrics-port", type=port_number, metavar="PORT", help="serve /metrics, /live and /ready; 0: a free one"
    )
    add_metrics_host(parser)
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="default: info"
    )


def run(args: argparse.Namespace) -> int:
    """Compare, or show."""
    pipeline = read_pipeline(args)
    if not pipeline.shadows:
        raise ComparisonError(
            f"{pipeline.path}: there are no shadows to compare. Write `shadows:` and under it `- version: 2`, say."
        )
    if args.show:
        console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
        for part in results(pipeline, open_store(pipeline)):
            console.print(part)
        return 0
    _log_to_stderr(args.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL)
    metrics = ComparisonMetrics(pipeline.name)
    health = Health(max(pipeline.limits.stall_after, 3 * pipeline.comparison.update_every))
    host = metrics_host(args, args.metrics_port)
    server = None
    if args.metrics_port is not None:
        server = HealthServer(health, metrics.registry, host, args.metrics_port)
        log.info("serving /metrics, /live and /ready on %s", server.address)
    try:
        _compare(pipeline, metrics, health)
    finally:
        if server is not None:
            server.close()
    log.info("stopped: what it knows is in Kafka")
    return 0


def _compare(pipeline: Pipeline, metrics: ComparisonMetrics, health: Health) -> None:
    try:
        from millstream.consumers.comparison.app import ComparisonApp  # noqa: PLC0415  (Faust is an extra)
        from millstream.consumers.comparison.run import run_until_stopped  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ComparisonError(
            f"`millstream compare` needs the package {error.name}, which is not installed. "
            "Install Millstream's extra `comparison`. In a checkout: make .venv/.comparison. With a wheel: pip install "
            "'FILE.whl[comparison]'"
        ) from None
    client = pipeline.client_config()
    require(client, pipeline)
    [topic] = states(client, [("comparisons", pipeline.comparison.topic)])
    assert topic.partitions is not None  # says `require`
    replication = topic.replication_factor or 1
    ensure(client, own_topics(pipeline), partitions=topic.partitions, replication=replication)
    if pipeline.labels is None:
        log.info("no labels in the pipeline file: answers are compared, their quality is not known")
    with tempfile.TemporaryDirectory(prefix="millstream-compare-") as folder:
        app = ComparisonApp(
            pipeline,
            open_store(pipeline),
            partitions=topic.partitions,
            replication=replication,
            folder=Path(folder),
            metrics=metrics,
            health=health,
        )
        models = (pipeline.shadow_model(shadow) for shadow in pipeline.shadows)
        shadows = ", ".join(f"{name} version {version}" for name, version in models)
        log.info("comparing %s of %s with %s", pipeline.model.name, pipeline.name, shadows)
        run_until_stopped(app.faust)


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)
