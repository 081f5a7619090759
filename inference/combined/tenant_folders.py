"""Finds the models of tenants in a repository's folder."""

from contextlib import suppress
from pathlib import Path

from millstream.inference.repository import versions_in
from millstream.inference.sources.listing import folders_in
from millstream.inference.sources.progress import Progress

TENANT = "{tenant}"
"""Stands for the tenant in the name of the models."""


def versions_of(repository: Path, name: str, progress: Progress) -> list[int]:
    """The numbers of a model's versions, ascending; empty: there is no such model. Raises OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return versions_in(repository / name, progress)
    return []


def first_tenant(repository: Path, name: str, progress: Progress) -> tuple[str, int] | None:
    """The first model in the repository that is of a tenant, and its newest version; None: there is none. Raises OSError.

    `name`: of the models, with `TENANT` for the tenant.
    """
    head, tail = name.split(TENANT)
    there: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        there = sorted(folders_in(repository, progress))
    fitting = [each for each in there if each.startswith(head) and each.endswith(tail) and len(each) > len(head + tail)]
    found = ((each, versions_of(repository, each, progress)) for each in fitting)
    return next(((each, versions[-1]) for each, versions in found if versions), None)
