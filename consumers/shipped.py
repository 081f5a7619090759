"""Finds the folders that come with Millstream beside its code."""

from pathlib import Path


def shipped(folder: str) -> Path:
    """A folder: inside the package if Millstream is installed from a wheel, else at the top of the checkout."""
    installed = Path(__file__).parents[1] / folder
    return installed if installed.is_dir() else Path(__file__).parents[2] / folder


def pages_folder() -> Path:
    """The folder with the pages of the documentation."""
    return shipped("docs")


def pages() -> list[str]:
    """The names of the pages."""
    return sorted(file.stem for file in pages_folder().glob("*.md"))
