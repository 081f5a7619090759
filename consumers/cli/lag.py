"""`millstream lag`: shows how far the pipeline is behind. It needs no running worker."""

import argparse
import dataclasses
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from prometheus_client import CollectorRegistry
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.consumers.cli.arguments import metrics_host
from millstream.consumers.cli.early_signals import ctrl_c_ends
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.health import Health, HealthServer
from millstream.consumers.observability.lag_metrics import (
    LagCollector,
    LagFollower,
    LagLook,
    LagWatch,
    by_topic,
    oldest_age,
    reader_of,
)
from millstream.consumers.resilience.signals import set_handler
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.errors import TopicsError
from millstream.topics.lag import LagReader, PartitionLag
from millstream.topics.lag_trend import MIN_BACKLOG_SECONDS, Trend, drain_seconds, drain_text

STALL_AFTER = 60.0  # seconds without a turn of the loop after which `/live` fails
PIPED_WIDTH = 1000  # columns of output that doesn't go to a terminal: one line per partition, for `grep`


def run(args: argparse.Namespace) -> int:
    """Print or serve the lag."""
    host = metrics_host(args, args.serve, "--serve")
    if args.serve is not None and (args.json or args.watch):
        args.parser.error(
            "--serve: it prints no lag, so --json and --watch have no effect. Leave them out, or leave out --serve."
        )
    pipeline = read_pipeline(args)
    if args.serve is not None:
        return _serve(pipeline, host, args.serve, args.interval)
    reader = reader_of(pipeline)
    looks, shown = _looks(reader, args), False
    to_terminal = sys.stdout.isatty()
    try:
        with ctrl_c_ends():
            looks = chain([next(looks)], looks)
        shown = True
        if args.json:
            for found in looks:
                print(_json(pipeline.group_id, found), flush=True)
        elif args.watch and to_terminal:
            with Live(_page(pipeline.group_id, next(looks), trends=True), auto_refresh=False) as live:
                for found in looks:
                    live.update(_page(pipeline.group_id, found, trends=True), refresh=True)
        else:
            for found in looks:
                Console(width=None if to_terminal else PIPED_WIDTH).print(
                    _page(pipeline.group_id, found, trends=args.watch)
                )
                sys.stdout.flush()
    except KeyboardInterrupt:
        if not (args.watch and shown):  # the way to end --watch
            raise
    finally:
        reader.close()
    return 0


def _looks(reader: LagReader, args: argparse.Namespace) -> Iterator[LagLook]:
    """One look at the lag; with `--watch`, one per interval, however long the broker is away meanwhile."""
    follower = LagFollower()

    def look() -> LagLook:
        return follower.look(time.monotonic(), reader.read())

    yield look()
    while args.watch:
        time.sleep(args.interval)
        yield _awaited(look, args.interval)


def _awaited(look: Callable[[], LagLook], interval: float) -> LagLook:
    """A look, once the lag can be read. Says what it waits for."""
    reported = ""
    while True:
        try:
            found = look()
        except TopicsError as error:
            if str(error) != reported:
                reported = str(error)
                print(f"{reported} It goes on once the lag can be read.", file=sys.stderr, flush=True)
            time.sleep(interval)
            continue
        if reported:
            print("the broker answers again", file=sys.stderr, flush=True)
        return found


def _serve(pipeline: Pipeline, host: str, port: int, interval: float) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP."""
    stop = threading.Event()
    set_handler(lambda *_: stop.set())
    watch = LagWatch(lambda: reader_of(pipeline), interval)
    try:
        registry = CollectorRegistry()
        registry.register(LagCollector(pipeline.name, pipeline.group_id, watch.latest))
        health = Health(STALL_AFTER)
        server = HealthServer(health, registry, host, port, option="--serve")
        print(f"serving the lag of group {pipeline.group_id} at /metrics on {server.address}, until Ctrl-C", flush=True)
        _tell_health(watch, health, stop)
        server.close()
    finally:
        watch.close()
    return 0


def _tell_health(watch: LagWatch, health: Health, stop: threading.Event) -> None:
    """Keep the probes up to date until `stop` is set, and report when the broker goes away and comes back."""
    reported = ""
    while not stop.wait(0.2):
        health.turn()
        health.ready = watch.latest() is not None
        health.waiting_for = watch.problem or "the broker's first response"
        if watch.problem != reported:
            reported = watch.problem
            print(reported or "the broker answers again", file=sys.stderr, flush=True)


def _json(group: str, look: LagLook) -> str:
    partitions = []
    for lag in look.lags:
        trend = look.trends.get((lag.topic, lag.partition))
        rounded = {"seconds": _rounded(lag.seconds)}
        partitions.append({**dataclasses.asdict(lag), **rounded, **_trend(lag.messages, trend)})
    row = {
        "group": group,
        "messages": look.messages,
        "seconds": _rounded(oldest_age(look.lags)),
        **_trend(look.messages, look.total),
        "partitions": partitions,
    }
    return json.dumps(row)


def _trend(messages: int, trend: Trend | None) -> dict[str, float | None]:
    """Growth and time to drain; null if not known, or if the lag doesn't shrink (JSON has no infinity)."""
    drain = drain_seconds(messages, trend)
    return {
        "growth": None if trend is None else round(trend.growth, 3),
        "drain_seconds": None if drain is None or math.isinf(drain) else round(drain, 3),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)  # Kafka's timestamps are whole milliseconds


def _page(group: str, look: LagLook, *, trends: bool) -> Group:
    """The table, and below it what needs somebody's action."""
    table = _table(group, look, trends=trends)
    past = [(lag.topic, lag.partition) for lag in look.lags if lag.past_end]
    if not past:
        return Group(table)
    warning = (
        f"warning: the group's offset is past the end of {ranges_of(past)}, so a worker ends there with exit code 3. "
        f"Stop the workers, then set the offset: `millstream check` prints the command and the ways to choose from"
    )
    return Group(table, Text(warning))


def _table(group: str, look: LagLook, *, trends: bool) -> Table:
    table = Table(box=None, pad_edge=False, title=f"group {group}", title_justify="left", show_footer=True)
    table.add_column("topic", footer="all", overflow="fold")  # a name is shown whole
    for heading in ("partition", "committed", "end"):
        table.add_column(heading, justify="right")
    table.add_column("lag", justify="right", footer=f"{'' if _counted(look.lags) else '~'}{look.messages:,}")
    table.add_column("lag seconds", justify="right", footer=_age(oldest_age(look.lags)))
    if trends:
        table.add_column("growth/s", justify="right", footer=_growth(look.total))
        table.add_column("caught up in", justify="right", footer=_drain(look.drain, oldest_age(look.lags)))
    if deleted := sum(lag.deleted for lag in look.lags):
        table.add_column("deleted unread", justify="right", footer=f"{deleted:,}")
    if held_back := sum(lag.held_back for lag in look.lags):
        table.add_column("in open transactions", justify="right", footer=f"{held_back:,}")
    several = len(by_topic(look.lags)) > 1
    for topic, lags in by_topic(look.lags).items():
        for lag in lags:
            unusual = [f"{lag.deleted:,}"] * bool(deleted) + [f"{lag.held_back:,}"] * bool(held_back)
            table.add_row(*_row(lag, look if trends else None), *unusual)
        if several:
            messages = sum(lag.messages for lag in lags)
            table.add_row(topic, "all", "", "", f"{'' if _counted(lags) else '~'}{messages:,}", _age(oldest_age(lags)))
    return table


def _row(lag: PartitionLag, look: LagLook | None) -> list[str]:
    cells = [
        lag.topic,
        str(lag.partition),
        "-" if lag.committed is None else str(lag.committed),
        str(lag.end),
        *(
            ("past end", "-")  # 0 would mean that all is predicted, but new events below the offset would be passed by
            if lag.past_end
            else (f"{'' if lag.counted else '~'}{lag.messages:,}", _age(lag.seconds))
        ),
    ]
    if look is None:
        return cells
    trend = look.trends.get((lag.topic, lag.partition))
    return [*cells, _growth(trend), _drain(drain_seconds(lag.messages, trend), lag.seconds)]


def _age(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.1f}"


def _counted(lags: Sequence[PartitionLag]) -> bool:
    return all(lag.counted for lag in lags)


def _drain(drain: float | None, age: float | None) -> str:
    """When the lag is gone, whose oldest event is `age` seconds old. Without a backlog, there is nothing to catch up with."""
    return "-" if age is not None and age < MIN_BACKLOG_SECONDS else drain_text(drain)


def _growth(trend: Trend | None) -> str:
    return "?" if trend is None else f"{trend.growth:+,.0f}"
