"""The pairs of models that the pipeline file names. Only these are evaluated, as each pair adds windows, results and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.comparison.errors import ComparisonError
from millstream.schemas.comparisons import Pair, Variant

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


class KnownPairs:
    """The pairs of a pipeline. If the file names no version of the primary, each version in the model repository counts."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Raises ComparisonError: the file names no version of the primary, and this machine lacks the model's folder."""
        model = pipeline.model
        self._shadows = frozenset(
            Variant(*pipeline.shadow_model(shadow), name=shadow.name) for shadow in pipeline.shadows
        )
        self._primary = model.name
        self._version = model.version
        self._versions = model.repository / model.name
        if self._version is None and not self._versions.is_dir():
            raise ComparisonError(
                f"{pipeline.at('model')}: expected the primary's `version`, or its folder {self._versions} on this machine; "
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
