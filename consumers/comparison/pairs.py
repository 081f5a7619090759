"""Which pairs of models the pipeline file names. Only they are compared: each pair makes windows, results and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.comparison.errors import ComparisonError
from millstream.schemas.comparisons import Pair, Variant

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


class KnownPairs:
    """The pairs of a pipeline. Where the file names no version of the primary, each version in the model repository is one."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Raises ComparisonError: the primary's version is neither in the file nor in a repository that is here."""
        model = pipeline.model
        self._shadows = frozenset(
            Variant(*pipeline.shadow_model(shadow), name=shadow.name) for shadow in pipeline.shadows
        )
        self._primary = model.name
        self._version = model.version
        self._versions = model.repository / model.name
        if self._version is None and not self._versions.is_dir():
            raise ComparisonError(
                f"{pipeline.at('model')}: expected the primary's `version`, or its folder {self._versions} where this job runs; "
                "found neither. Only comparisons of known versions count: write `version:` under `model:`."
            )

    def __contains__(self, pair: object) -> bool:
        assert isinstance(pair, Pair)
        primary, shadow = pair
        if shadow not in self._shadows or primary[::2] != (self._primary, "primary"):
            return False
        if self._version is not None:
            return primary.version == self._version
        return primary.version > 0 and (self._versions / str(primary.version)).is_dir()
