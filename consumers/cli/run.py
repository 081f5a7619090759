"""`millstream run`: runs as many workers as the load needs, on this machine, and supervises them."""

import argparse
import logging
import os
import socket
from functools import partial

from rich.console import Console

from millstream.consumers.cli.arguments import metrics_host
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.say import say
from millstream.consumers.observability.json_log import json_formatter
from millstream.consumers.resilience.signals import stop_on_signals
from millstream.consumers.supervision.json_screen import JsonScreen
from millstream.consumers.supervision.local_run import LocalRun
from millstream.consumers.supervision.run_screen import Screen
from millstream.consumers.supervision.scaling import Policy
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import Admin, refuse_unfit_broker, require, roles, states
from millstream.topics.group import refuse_foreign_group


def run(args: argparse.Namespace) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP; returns 0 if all workers drained, else 1."""
    if json_formatter() is not None:
        logging.getLogger("kafka").propagate = False  # as in text: see `main`
    host = metrics_host(args, args.metrics_port)
    pipeline = read_pipeline(args)
    client = pipeline.client_config()
    admin = Admin(client, partial(say, level=logging.WARNING))
    require(admin, pipeline)
    refuse_unfit_broker(admin, pipeline)
    refuse_foreign_group(client, pipeline, pipeline.group_id)
    inputs = [role for role in roles(pipeline) if role[0] == "input"]
    partitions = sum(state.partitions or 0 for state in states(admin, inputs))
    del admin  # it would keep its connections and threads
    policy = _policy(args, pipeline, partitions)
    prefix = args.instance_id_prefix or socket.gethostname()
    with _screen(args, prefix) as screen:
        if policy.max_workers > partitions:
            screen.say(
                f"up to {policy.max_workers} workers for {partitions} partitions: only one worker at a time reads a partition, "
                f"so more than {partitions} workers have nothing to do"
            )
        level = ("--log-level", "debug") if args.log_level == "debug" else ()
        log_options = (*level, "--log-format", args.log_format)
        local = LocalRun(
            pipeline, policy, screen, environ=os.environ, instance_id_prefix=prefix, log_options=log_options
        )
        stop_on_signals(local.stop, lambda _name: local.stop_at_once())
        return 0 if local.serve(host, args.metrics_port) else 1


def _screen(args: argparse.Namespace, instance_id_prefix: str) -> Screen:
    console = Console()
    if (formatter := json_formatter()) is not None:
        return JsonScreen(console, formatter, log_level=args.log_level, instance_id_prefix=instance_id_prefix)
    return Screen(console, plain=args.plain or not console.is_terminal, log_level=args.log_level)


def _policy(args: argparse.Namespace, pipeline: Pipeline, partitions: int) -> Policy:
    """The limits from the command line, else from the pipeline file, else from the cores and the topics' partitions."""
    scaling = pipeline.scaling
    if args.workers is not None and (args.min is not None or args.max is not None):
        args.parser.error("--workers N is short for --min N --max N: give one or the other.")
    least = args.workers or args.min or scaling.min
    most = args.workers or args.max or scaling.max or max(least, min(partitions, os.cpu_count() or 1))
    if most < least:
        args.parser.error(
            f"expected --min to be at most --max, found --min {least} and --max {most}. (A limit that isn't given comes from "
            "scaling.min or scaling.max.)"
        )
    return Policy(least, most, scaling.catch_up, scaling.scale_down_after, pipeline.limits.in_flight_events)
