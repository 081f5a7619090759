"""`millstream work`: one worker, until it is told to stop."""

import argparse
import gc
import logging
import os
import signal
import sys
from types import FrameType

from millstream.consumers.cli.arguments import (
    add_former_name,
    add_metrics_host,
    add_pipeline,
    metrics_host,
    port_number,
    read_pipeline,
)
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.worker.build import build_worker
from millstream.consumers.worker.instance_id import take_instance_id
from millstream.consumers.worker.plan import group_of, make_plan
from millstream.consumers.worker.worker import Worker
from millstream.topics.admin import refuse_unfit_broker, require
from millstream.topics.group import refuse_foreign_group

log = logging.getLogger("millstream")

# The level is for these: to the schema registry's HTTP library each request is worth an "info".
OWN_LOGGERS = ("millstream", "kafka")
# Threads take turns at Python's lock; at the default of 5 ms a thread that wakes for a record waits as long as a whole window.
SWITCH_INTERVAL = 0.0005  # seconds
# A record is objects that the garbage collector counts, though it is never its to free; at the default of 700 it looked through
# thousands of them again and again, for a fifth of a worker's time.
COLLECT_AFTER = 100_000  # objects


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--instance-id",
        metavar="NAME",
        help="a name that lasts over restarts, such as the pod's (default: this machine's next)",
    )
    add_former_name(parser, "--slot", "--instance-id")
    parser.add_argument(
        "--role",
        default="primary",
        choices=["primary", "shadow"],
        help="primary (default), or shadow: only compare, for the dedicated shadows of the pipeline, in a group of their own",
    )
    parser.add_argument("--until-idle", action="store_true", help="process what is there, commit, and end")
    parser.add_argument(
        "--metrics-port", type=port_number, metavar="PORT", help="serve /metrics, /live and /ready here; 0: a free port"
    )
    add_metrics_host(parser)
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="default: info"
    )


def run(args: argparse.Namespace) -> int:
    """Work; 0 when all that was read is written and committed, 1 when not. Errors: see `cli.main`."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(args.log_level.upper())
    host = metrics_host(args, args.metrics_port)
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(COLLECT_AFTER)
    pipeline = read_pipeline(args)
    metrics = Metrics(pipeline.name)
    health = Health(pipeline.limits.stall_after)
    server = None
    if args.metrics_port is not None:
        # Served from here on, so that a probe during the start learns what the worker waits for.
        server = HealthServer(health, metrics.registry, host, args.metrics_port)
        log.info("serving /metrics, /live and /ready on %s", server.address)
    try:
        require(pipeline.client_config(), pipeline)
        refuse_unfit_broker(pipeline.client_config(), pipeline)
        plan = make_plan(pipeline, dedicated=args.role == "shadow")
        refuse_foreign_group(pipeline.client_config(), pipeline, group_of(plan))
        instance_id = take_instance_id(args.instance_id, group=group_of(plan), bootstrap=pipeline.kafka.bootstrap)
        worker = build_worker(plan, health, metrics, instance_id=instance_id.name, until_idle=args.until_idle)
        _stop_on_signals(worker)
        log.info(
            "pid %d, instance ID %s, runs %s: %s on %s, with schema %s, id %d",
            os.getpid(),
            instance_id.name,
            pipeline.name,
            plan.model.place,
            plan.executor.device,
            plan.reader.name,
            plan.reader.id,
        )
        gc.freeze()  # what is loaded stays: no collection need look at it again
        drained = worker.run()
        instance_id.release()
    finally:
        if server is not None:
            server.close()
    log.info(
        "drained: all that was read is written and committed" if drained else "ended without finishing what it held"
    )
    return 0 if drained else 1


def _stop_on_signals(worker: Worker) -> None:
    def stop(number: int, _frame: FrameType | None) -> None:
        log.info("%s: draining", signal.Signals(number).name)
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
