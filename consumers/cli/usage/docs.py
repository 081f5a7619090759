"""The arguments of `millstream docs`."""

import argparse

from millstream.consumers.cli.completed import PAGES_FUNCTION, words
from millstream.consumers.shipped import pages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    page_name = parser.add_argument(
        "page", metavar="PAGE", nargs="?", help="the page, or PAGE#SECTION; nothing: list the pages"
    )
    page_name.complete = words(PAGES_FUNCTION, pages())  # type: ignore[attr-defined]
