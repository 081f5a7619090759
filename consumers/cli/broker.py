"""`millstream broker`: runs Apache Kafka on this machine, else the embedded broker, until Ctrl-C."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from millstream.consumers.cli.cache_folder import cache_folder
from millstream.consumers.cli.usage.broker import PORT
from millstream.consumers.resilience.signals import set_handler
from millstream.topics.embedded import EmbeddedBroker
from millstream.topics.errors import BrokerError
from millstream.topics.local.kafka import LocalKafka
from millstream.topics.local.kafka_jars import KAFKA_VERSION, are_fetched, missing_for_kafka

STARTING = "Starting Apache Kafka ..."
FETCHING = "Starting Apache Kafka. Maven downloads it first: 43 MB ..."
REAL = """Apache Kafka {version} runs on {bootstrap}. {data}
Its log: {log}
Use it in another terminal:
    export KAFKA_BOOTSTRAP={bootstrap}
Ctrl-C ends it."""
EMBEDDED = """The embedded broker runs on {bootstrap}: it is no Kafka, and can do less.
  - It has no data on disk: when it ends, all topics and offsets are lost.
  - A partition keeps its last 5 MB. It drops older events, even if nobody has read them.
  - Each topic has {partitions} partitions. Settings of topics are ignored.
  - It has no transactions: use `delivery: at_least_once`. A `dead-letters replay` that is killed may repeat events.
  - `millstream compare` and rollouts need Kafka.
Apache Kafka can't run here: {missing}. Install Java 17 and Maven for it.
Use the embedded broker in another terminal:
    export KAFKA_BOOTSTRAP={bootstrap}
Ctrl-C ends it."""


def run(args: argparse.Namespace) -> int:
    """Run the best broker that this machine can run, until SIGINT, SIGTERM or SIGHUP."""
    cache = cache_folder(args.cache)
    missing = missing_for_kafka(cache)
    set_handler(lambda *_: sys.exit(0), (signal.SIGTERM, signal.SIGHUP))
    if args.command is not None and args.port is not None:
        args.parser.error(f"--port {args.port}: with --run, the broker takes a free port. Leave out one of the two.")
    if args.command is not None and args.data is not None:
        args.parser.error(f"--data {args.data}: with --run, its data is temporary. Leave out one of the two.")
    if args.command == []:
        args.parser.error("--run: expected a command behind it, for example: --run millstream demo --shadow")
    if args.data is not None and missing is not None:
        raise BrokerError(
            f"--data {args.data}: Apache Kafka can't run here: {missing}. Leave out --data, or install Java 17 and Maven."
        )
    try:
        if args.command is not None:
            return _run(args.command, cache, missing)
        if missing is None:
            _wait_with_kafka(cache, PORT if args.port is None else args.port, args.data)
        elif args.port is not None:
            raise BrokerError(
                f"--port {args.port}: Apache Kafka can't run here: {missing}. Install Java 17 and Maven, or leave out --port for "
                "the embedded broker, which can't choose its port."
            )
        else:
            with EmbeddedBroker() as broker:
                told = EMBEDDED.format(bootstrap=broker.bootstrap, partitions=broker.partitions, missing=missing)
                print(told, flush=True)
                signal.pause()
    except KeyboardInterrupt:  # the way to end it
        pass
    return 0


def _wait_with_kafka(cache: Path, port: int, data: Path | None) -> None:
    told = (
        "Its data is temporary: it is deleted at the end, with its log." if data is None else f"{data} keeps its data."
    )
    _say_start(cache)
    with LocalKafka(cache, port or None, data=data) as kafka:
        print(REAL.format(version=KAFKA_VERSION, bootstrap=kafka.bootstrap, data=told, log=kafka.log), flush=True)
        kafka.wait()


def _say_start(cache: Path) -> None:
    print(STARTING if are_fetched(cache) else FETCHING, flush=True)


def _run(command: list[str], cache: Path, missing: str | None) -> int:
    if missing is not None:
        raise BrokerError(f"--run: Apache Kafka can't run here: {missing}. Install Java 17 and Maven.")
    _say_start(cache)
    with LocalKafka(cache) as kafka:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # the command gets it, too, and ends in order; then this process ends
        try:
            done = subprocess.run(command, env={**os.environ, "KAFKA_BOOTSTRAP": kafka.bootstrap}, check=False)
        except OSError as error:
            raise BrokerError(f"--run {command[0]}: the command can't be started: {error.strerror}.") from None
        return done.returncode
