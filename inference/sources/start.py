"""Brings a version to this machine when a worker starts, also while the source is away."""

import logging
from dataclasses import dataclass
from pathlib import Path

from millstream.inference.errors import SourceUnavailable
from millstream.inference.sources.interface import ModelSource, Wanted
from millstream.inference.sources.wanted import wanted_version

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A version on this machine."""

    version: int
    folder: Path


def fetch_at_start(source: ModelSource, name: str, wanted: Wanted, place: str) -> Fetched:
    """The wanted version. If the source is away, it is the one that the cache knew last, with a warning in the log.

    Args:
        source: where the model is.
        name: the model's.
        wanted: the version, as the pipeline names it.
        place: of the pipeline file's option, for messages.

    Raises:
        ModelConfigError: there is no such model, version or alias; or its files are wrong.
        SourceUnavailable: the source is away, and the version is not in the cache.
    """
    try:
        version = wanted_version(source, name, wanted, place)
        return Fetched(version, source.fetch(name, version))
    except SourceUnavailable as away:
        found = source.at_hand(name, wanted)
        if found is None:
            raise
        version, folder = found
        log.warning("%s Meanwhile, version %d of model `%s` runs from the cache (%s)", away, version, name, folder)
        return Fetched(version, folder)
