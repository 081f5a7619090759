"""Opens the source that a pipeline's `model.repository` names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millstream.inference.sources.folder import FolderSource
from millstream.inference.sources.interface import ModelSource
from millstream.inference.sources.progress import QUIET_TIMEOUT

MLFLOW = "models:/"


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a pipeline's models are."""

    where: Path | str  # a folder, or a URL
    cache: Path  # folder that keeps what is fetched
    cache_size: int  # bytes
    registered: Mapping[str, str] = field(
        default_factory=dict
    )  # a model's name -> its name in MLflow, if it is another
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # options of the client; they may be secrets
    client_at: str = "pipeline file: model.client"  # the place of these options, for messages


def open_source(repository: Repository, quiet: float = QUIET_TIMEOUT) -> ModelSource:
    """The source. It is not asked anything yet.

    Args:
        repository: where the models are.
        quiet: seconds without an answer after which a call is given up.

    Raises:
        ModelConfigError: a client is missing, or takes no such option.
    """
    if isinstance(repository.where, Path):
        return FolderSource(repository.where, quiet)
    # Imported here, because a folder, which most pipelines have, needs none of them.
    from millstream.inference.sources.cache import VersionCache  # noqa: PLC0415
    from millstream.inference.sources.cached import CachedSource  # noqa: PLC0415
    from millstream.inference.sources.mlflow_registry import MlflowRegistry  # noqa: PLC0415
    from millstream.inference.sources.object_store import ObjectStore  # noqa: PLC0415

    advice = f"Set them at {repository.client_at}, or as the client usually takes them (`millstream docs registries`)."
    place = (
        MlflowRegistry(repository.where, repository.registered, repository.client, advice)
        if repository.where.startswith(MLFLOW)
        else ObjectStore(repository.where, repository.client, advice)
    )
    return CachedSource(place, VersionCache(repository.cache, repository.cache_size), quiet)
