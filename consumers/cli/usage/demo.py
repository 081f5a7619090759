"""The arguments of `millstream demo`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import count, positive, rate_or_0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument(
        "--events", type=positive, default=20_000, metavar="N", help="number of events (default: 20000)"
    )
    parser.add_argument(
        "--rate",
        type=rate_or_0,
        metavar="R",
        help="events per second (default: 2000, with --rollout 1200; 0: as fast as results come)",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="processes for each model version, at most one per partition (default: 1)",
    )
    parser.add_argument(
        "--model-version", choices=["1", "2", "both"], default="both", help="1, 2, or both side by side (the default)"
    )
    parser.add_argument(
        "--executor",
        choices=["onnx", "kserve"],
        default="onnx",
        help="what runs the model: onnx (the default) in the workers, or kserve on a server: Triton, which the first run fetches "
        "(98 MB to download, 300 MB on disk). Needs Linux on x86_64, Python 3.11 or 3.12, and the extra `kserve`",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder that keeps Triton (default: ~/.cache/millstream)",
    )
    parser.add_argument(
        "--broken",
        type=count,
        default=10,
        metavar="N",
        help="events broken on purpose, for dead letters (default: 10)",
    )
    parser.add_argument(
        "--load",
        choices=["steady", "spike"],
        default="steady",
        help="spike: ten times the load for a while, on a real broker, with as many workers as the load needs; the only other "
        "options that count are --picture and --bootstrap",
    )
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="version 1 is the primary and version 2 its shadow, on a real broker; labels come when the flights have arrived, "
        "and the comparison job evaluates both",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="version 2 arrives in the model repository while the events flow, and the workers follow it; the other options "
        "that count are --events, --rate, --workers and --bootstrap",
    )
    parser.add_argument(
        "--rollout",
        action="store_true",
        help="on a real broker, autopilot lets version 2 take over by itself, and rolls a broken version 3 back; the only other "
        "options that count are --rate, --plain and --bootstrap",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("millstream-spike.svg"),
        metavar="FILE",
        help="file for the chart of the spike's lag and workers (default: millstream-spike.svg)",
    )
    parser.add_argument(
        "--plain", action="store_true", help="print one line per second; the default if the output isn't a terminal"
    )
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="a Kafka broker to use (default: the environment variable KAFKA_BOOTSTRAP, else a broker in this process)",
    )
