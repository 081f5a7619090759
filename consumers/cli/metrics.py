"""`millstream metrics`: lists every metric of a worker, from the code that declares them."""

import argparse

from millstream.consumers.observability.metrics import ALL, markdown


def run(_args: argparse.Namespace) -> int:
    """Print a Markdown table."""
    print(metrics_markdown(), end="")
    return 0


def metrics_markdown() -> str:
    """The table of docs/metrics.md."""
    return markdown(ALL)
