"""The arguments of `millstream optimize`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import add_events_option, positive, seconds
from millstream.consumers.cli.completed import PIPELINE_FILES

PRECISIONS = ("fp32", "fp16", "int8-dynamic", "int8-static")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    source = parser.add_argument(
        "pipeline",
        metavar="PIPELINE|MODEL_DIR",
        type=Path,
        help="the pipeline file or its folder; or the folder of a model's version, for events that are JSON without a schema",
    )
    source.complete = PIPELINE_FILES  # type: ignore[attr-defined]
    parser.add_argument(
        "--output",
        type=positive,
        metavar="VERSION",
        required=True,
        help="the number of the new version, which must not exist yet",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="fp32: only simplify the graph (default); fp16: 16-bit numbers, for GPUs; int8-dynamic: 8-bit weights; "
        "int8-static: also 8-bit activations, whose ranges come from the events",
    )
    add_events_option(parser, "none, which needs --blind")
    parser.add_argument(
        "--labels",
        metavar="FIELD",
        help="the events' field with the true answer, to compare the accuracy; the schema need not have it",
    )
    parser.add_argument(
        "--limit", type=positive, default=10_000, metavar="N", help="events to read at most (default: 10000)"
    )
    parser.add_argument(
        "--blind", action="store_true", help="write the version without comparing its answers on any events"
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long to measure both versions (default: 10)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
