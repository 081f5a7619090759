"""`millstream demo`: sends real flights through the whole service, on an embedded or a real broker."""

import argparse
import logging
import os
import sys
import threading
from pathlib import Path
from types import FrameType

from rich.console import Console

from millstream.consumers.cli.cache_folder import cache_folder
from millstream.consumers.demo.errors import DemoDataError
from millstream.consumers.demo.scene import PARTITIONS
from millstream.consumers.resilience.signals import set_handler

# See `work`. With Python's default, the waits of the demo's own threads would add to the latency.
SWITCH_INTERVAL = 0.0005  # seconds
RATE, ROLLOUT_RATE = 2000.0, 1200.0  # events per second, by default


def run(args: argparse.Namespace) -> int:
    """Run it; returns 0 if the check at its end succeeded, else 1."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("kafka").setLevel("ERROR")  # hide problems that the Kafka client solves by itself
    console = Console()
    if args.rate is None:
        args.rate = ROLLOUT_RATE if args.rollout else RATE
    bootstrap = args.bootstrap or os.environ.get("KAFKA_BOOTSTRAP") or None
    if args.executor == "kserve" and (args.load == "spike" or args.shadow or args.reload or args.rollout):
        args.parser.error(
            "--executor kserve: the spike, the shadow, the reload and the rollout run their models in the workers. Leave out one "
            "of the two."
        )
    try:
        if args.load == "spike":
            return _spike(bootstrap, args.picture, console)
        if args.shadow:
            return _shadow(bootstrap, args.events, args.rate, console)
        if args.rollout:
            return _rollout(args, bootstrap, console)
        if args.reload:
            return _reload(args, bootstrap, console)
        return _steady(args, bootstrap, console)
    except DemoDataError as error:
        print(error, file=sys.stderr)
    except ModuleNotFoundError as error:
        extras = "demo,comparison" if args.shadow or args.rollout else "demo"  # `compare` and autopilot need both
        print(
            f"The demo needs the package {error.name}, which is not installed. Install it with Millstream's extras: "
            f"{sys.executable} -m pip install 'millstream[{extras}]'",
            file=sys.stderr,
        )
    return 1


def _check_workers(args: argparse.Namespace) -> None:
    if args.workers > PARTITIONS:
        args.parser.error(
            f"--workers {args.workers}: expected at most {PARTITIONS}: each topic has {PARTITIONS} partitions, and one worker at "
            "a time reads a partition."
        )


def _reload(args: argparse.Namespace, bootstrap: str | None, console: Console) -> int:
    _check_workers(args)
    from millstream.consumers.demo.reload import Options, run_reload  # noqa: PLC0415  (polars is an extra)

    options = Options(args.events, args.rate, args.workers, bootstrap)
    return 0 if run_reload(options, console, _stop_on_signals()) else 1


def _steady(args: argparse.Namespace, bootstrap: str | None, console: Console) -> int:
    _check_workers(args)
    from millstream.consumers.demo.run import Options, run_demo  # noqa: PLC0415  (polars is an extra)

    options = Options(
        events=args.events,
        rate=args.rate,
        workers=args.workers,
        versions=(1, 2) if args.model_version == "both" else (int(args.model_version),),
        broken=min(args.broken, args.events),
        plain=args.plain or not console.is_terminal,
        bootstrap=bootstrap,
        cache=cache_folder(args.cache) if args.executor == "kserve" else None,
    )
    return 0 if run_demo(options, console, _stop_on_signals()) else 1


def _spike(bootstrap: str | None, picture: Path, console: Console) -> int:
    from millstream.consumers.demo.spike import run_spike  # noqa: PLC0415

    if bootstrap is None:
        print(
            "The spike needs a real broker: its workers come and go with exactly-once delivery, and the embedded broker can't do "
            "that. Run `millstream broker --run millstream demo --load spike`, which needs Java 17 and Maven, or name one: "
            "--bootstrap HOST:PORT.",
            file=sys.stderr,
        )
        return 1
    if not picture.absolute().parent.is_dir():
        print(
            f"--picture {picture}: the folder {picture.absolute().parent} doesn't exist. Create it, or name another.",
            file=sys.stderr,
        )
        return 1
    good = run_spike(bootstrap, picture, console, _stop_on_signals())
    console.print(f"The chart is in {picture}.", markup=False, highlight=False, soft_wrap=True)
    return 0 if good else 1


def _shadow(bootstrap: str | None, events: int, rate: float, console: Console) -> int:
    from millstream.consumers.demo.shadow import run_shadow  # noqa: PLC0415

    if bootstrap is None:
        print(
            "The demo with a shadow needs a real broker: the comparison job keeps its state in compacted topics. Run "
            "`millstream broker --run millstream demo --shadow`, which starts one if Java 17 and Maven are installed, or name "
            "one: --bootstrap HOST:PORT.",
            file=sys.stderr,
        )
        return 1
    return 0 if run_shadow(bootstrap, events, rate, console, _stop_on_signals()) else 1


def _rollout(args: argparse.Namespace, bootstrap: str | None, console: Console) -> int:
    if bootstrap is None:
        print(
            "The demo with a rollout needs a real broker: the rollout's state is in a compacted topic. Run `millstream broker "
            "--run millstream demo --rollout`, which starts one if Java 17 and Maven are installed, or name one: "
            "--bootstrap HOST:PORT.",
            file=sys.stderr,
        )
        return 1
    if not args.rate:
        args.parser.error(
            "--rate 0: a rollout takes its time, so it needs a steady rate. Write for example --rate 1200."
        )
    from millstream.consumers.demo.rollout.run import Options, run_rollout  # noqa: PLC0415  (polars is an extra)

    options = Options(args.rate, args.plain or not console.is_terminal, bootstrap)
    return 0 if run_rollout(options, console, _stop_on_signals()) else 1


def _stop_on_signals() -> threading.Event:
    """An event that the first Ctrl-C, SIGTERM or SIGHUP sets. A second one ends the demo without waiting for more results."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    set_handler(handle)
    return stop
