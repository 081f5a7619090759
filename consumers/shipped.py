"""Finds the folders that come with Millstream beside its code."""

from pathlib import Path


def shipped(folder: str) -> Path:
    """A folder: inside the package if Millstream is installed from a wheel, else at the top of the checkout."""
    installed = Path(__file__).parents[1] / folder
    return installed if installed.is_dir() else Path(__file__).parents[2] / folder
