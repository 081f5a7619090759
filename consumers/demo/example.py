"""Finds the folder of the flights example."""

from pathlib import Path


def example_folder() -> Path:
    """The folder with the pipeline file, schemas and models: beside this module if installed, else in the checkout."""
    installed = Path(__file__).parent / "flights"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples" / "flights"
