"""Run a real Kafka broker in the foreground, for trying things out: `python -m tests.broker [--port 9092]`."""

import argparse
import signal
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
    port: int = parser.parse_args().port
    if (missing := missing_for_maven()) is not None:
        print(f"A broker without containers needs Java 17 and Maven: {missing}.", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with MavenKafka(port) as kafka:
            print(_USE.format(bootstrap=kafka.bootstrap), flush=True)
            signal.pause()
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
