"""Finds the folder of the flights example."""

from pathlib import Path

from millstream.consumers.shipped import shipped


def example_folder() -> Path:
    """The folder with the pipeline file, schemas and models."""
    return shipped("examples/flights")
