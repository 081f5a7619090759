"""Finds the version that the pipeline file wants at this moment."""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.consumers.serving.errors import NotServed
from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources.interface import ModelSource, Wanted
from millstream.inference.sources.wanted import version_of


@dataclass(frozen=True, slots=True)
class Target:
    """A version with its content."""

    version: int
    fingerprint: str  # see `ModelSource.versions`


def wanted_now(source: Callable[[], ModelSource], name: str, wanted: Wanted, place: str) -> Target:
    """Ask the repository.

    Args:
        source: returns where the model is.
        name: the model's.
        wanted: a number, `latest` or an alias.
        place: of the pipeline file's option, for messages.

    Raises:
        NotServed: the repository is away, or has no such version.
    """
    try:
        versions = source().versions(name)
        number = version_of(name, wanted, place, versions=lambda: versions, aliases=lambda: source().aliases(name))
        return Target(number, versions[number])
    except SourceUnavailable as error:
        raise NotServed("unavailable", str(error), transient=True) from error
    except ModelConfigError as error:
        raise NotServed("repository", str(error), transient=True) from error
    except KeyError:
        if number != wanted:
            raise NotServed("repository", f"{place}: version {number} was deleted just now.", transient=True) from None
        found = ", ".join(map(str, sorted(versions))) or "none"
        raise NotServed(
            "repository",
            f"{place}: expected version {number} of model {name} in the repository, found {found}. Add it, or name another.",
            transient=True,
        ) from None
