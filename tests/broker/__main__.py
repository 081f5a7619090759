"""Run a real Kafka broker in the foreground, for trying things out: `python -m tests.broker [--port 9092]`.

`python -m tests.broker --run COMMAND...` runs it for as long as a command that finds it in KAFKA_BOOTSTRAP.
"""

import argparse
import os
import signal
import subprocess
import sys

from tests.broker.errors import BrokerError
from tests.broker.kafka_jars import missing_for_maven
from tests.broker.maven import MavenKafka

_USE = """Apache Kafka runs on {bootstrap}. Its data is temporary. Use it in another terminal:
    export KAFKA_BOOTSTRAP={bootstrap}
Ctrl-C ends it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker", description=__doc__)
    parser.add_argument("--port", type=int, default=9092, help="port to listen on (default: %(default)s)")
    parser.add_argument("--run", nargs=argparse.REMAINDER, metavar="COMMAND", help="run this, and end with it")
    args = parser.parse_args()
    port: int = args.port
    if (missing := missing_for_maven()) is not None:
        print(f"A real broker needs Java 17 and Maven: {missing}.", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if args.run:
            return _run(args.run)
        with MavenKafka(port) as kafka:
            print(_USE.format(bootstrap=kafka.bootstrap), flush=True)
            signal.pause()
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _run(command: list[str]) -> int:
    print("Starting Apache Kafka (the first time it is fetched, 43 MB) ...", flush=True)
    with MavenKafka() as kafka:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it too, ends in order, and we after it
        return subprocess.run(command, env={**os.environ, "KAFKA_BOOTSTRAP": kafka.bootstrap}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
