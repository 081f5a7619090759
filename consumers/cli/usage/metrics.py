"""The arguments of `millstream metrics`."""

import argparse


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
