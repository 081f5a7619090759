"""The pairs of models that the pipeline file names. Only these are evaluated, as each pair adds windows, results and metrics."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.consumers.comparison.errors import ComparisonError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.schemas.comparisons import Pair, Variant

if TYPE_CHECKING:
    from millstream.inference.sources.interface import ModelSource
    from millstream.pipeline.pipeline import Pipeline

ASK_AGAIN = 60.0  # seconds between two questions to a remote repository about a version that it lacked


class KnownPairs:
    """The pairs of a pipeline. Each version of the primary in the model repository counts in two cases:

    - The file names no number of it.
    - The pipeline has a rollout, so other versions answer, too.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        """Raises ComparisonError: the file names no version of the primary, and this machine lacks the model's folder."""
        model = pipeline.model
        self._shadows = frozenset(
            Variant(*pipeline.shadow_model(shadow), name=shadow.name) for shadow in pipeline.shadows
        )
        self._primary = model.name
        self._version = pipeline.wanted_version if isinstance(pipeline.wanted_version, int) else None
        self._is_any = self._version is None or pipeline.rollout is not None
        self._versions: Path | _RemoteVersions
        if isinstance(model.repository, Path):
            self._versions = model.repository / model.name
            if self._version is None and not self._versions.is_dir():
                raise ComparisonError(
                    f"{pipeline.at('model')}: expected the primary's `version`, or its folder {self._versions} on this machine; "
                    "found neither. Only comparisons of known versions count: write `version:` under `model:`."
                )
        elif self._is_any:
            self._versions = _RemoteVersions(PipelineModels(pipeline).source, model.name)

    def refusal(self, pair: Pair) -> str:
        """Says that the pipeline file names other pairs than this one."""
        named = ", ".join(sorted(map(_named, self._shadows)))
        version = "" if self._version is None else f" version {self._version}"
        version += " (with its rollout, each version in the repository)" if version and self._is_any else ""
        return (
            f"{_named(pair.primary)} with the shadow {_named(pair.shadow)}; the pipeline file names {self._primary}{version} "
            f"with {named}. If these versions were compared before a change of the file, nothing is to be done"
        )

    def __contains__(self, pair: object) -> bool:
        assert isinstance(pair, Pair)
        primary, shadow = pair
        if shadow not in self._shadows or primary[::2] != (self._primary, "primary"):
            return False
        if primary.version == self._version:
            return True
        if not self._is_any:
            return False
        if isinstance(self._versions, Path):
            return primary.version > 0 and (self._versions / str(primary.version)).is_dir()
        return primary.version in self._versions


def _named(variant: Variant) -> str:
    name = f" ({variant.name})" if variant.name not in ("primary", "shadow") else ""
    return f"{variant.model} version {variant.version}{name}"


class _RemoteVersions:
    """The versions of a model in a remote repository, which is asked again for one that it lacked."""

    def __init__(self, source: ModelSource, name: str) -> None:
        self._source = source
        self._name = name
        self._known: frozenset[int] = frozenset()
        self._asked = -ASK_AGAIN

    def __contains__(self, version: int) -> bool:
        if version not in self._known and time.monotonic() - self._asked > ASK_AGAIN:
            self._asked = time.monotonic()
            try:
                self._known = frozenset(self._source.versions(self._name))
            except (ModelConfigError, SourceUnavailable):
                # The repository is away, and the comparisons go on: an unknown version counts once it is known.
                return False
        return version in self._known
