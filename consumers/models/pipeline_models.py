"""The models that a pipeline file names, from its repository."""

from functools import cached_property, partial
from pathlib import Path

from millstream.inference.combined.tenant_folders import first_tenant, versions_of
from millstream.inference.combined.version import NamedMember
from millstream.inference.overrides import Fields
from millstream.inference.repository import NAME_VERSION, ModelVersion, load_version, read_version
from millstream.inference.sources.choice import Repository, open_source
from millstream.inference.sources.interface import ModelSource, Wanted
from millstream.inference.sources.start import Fetched, fetch_at_start
from millstream.pipeline.comparison_sections import Shadow
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.repository import mlflow_url, without_version
from millstream.pipeline.sections import NamedModel
from millstream.schemas.wording import Loc


class PipelineModels:
    """See the module. What it fetched stays in the cache while this process runs, or until the source is told otherwise.

    A version that it fetched once is the one that it loads, also if an alias has moved meanwhile.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._fetched: dict[tuple[str, Wanted], Fetched] = {}

    @cached_property
    def source(self) -> ModelSource:
        """Where the versions come from. Raises ModelConfigError: its client is missing, or takes no such option."""
        return open_source(repository_of(self.pipeline))

    def fetch_primary(self) -> Fetched:
        """Bring the primary's version to this machine. Raises as `primary` does."""
        return self._fetch(self.pipeline.model.name, self.pipeline.wanted_version, self.pipeline.at("model"))

    def fetch_shadow(self, shadow: Shadow) -> Fetched:
        """Bring a shadow's version to this machine. Raises as `primary` does."""
        return self._fetch(*self.pipeline.shadow_model(shadow), self.pipeline.at("shadows"))

    def fetch_member(self, named: NamedModel | NamedMember, place: Loc) -> Fetched:
        """Bring a model of `models` to this machine. Arguments as of `member`. Raises as `primary` does."""
        return self._fetch(named.name, named.version, self.pipeline.at("models", *place))

    def primary(self) -> ModelVersion:
        """The version that makes the predictions, with the fields that the pipeline file maps to its inputs.

        Raises:
            ModelConfigError: there is no such version, or its config.yaml is wrong.
            SourceUnavailable: the repository is away, and the version is not in the cache.
        """
        model = self.pipeline.model
        return self._loaded(model.name, self.pipeline.wanted_version, ("model",), model.inputs)

    def read(self, version: int, folder: Path) -> ModelVersion:
        """A version of the primary's model, whose files are in this folder. Raises ModelConfigError."""
        return self._read(self.name, version, folder, self.pipeline.model.inputs, ("model",))

    def read_member(self, named: NamedMember, version: int, folder: Path) -> ModelVersion:
        """A version of a model of `models`, whose files are in this folder. Raises ModelConfigError."""
        return self._read(named.name, version, folder, named.inputs, ("models", *named.place))

    @property
    def name(self) -> str:
        """Of the primary's model."""
        return self.pipeline.model.name

    def wanted(self, version: Wanted) -> ModelVersion:
        """A version of the primary's model, with the same fields; None: the pipeline's. Raises as `primary` does."""
        if version is None:
            return self.primary()
        return self._loaded(self.name, version, ("model",), self.pipeline.model.inputs)

    def fetch(self, version: Wanted) -> Fetched:
        """Bring a version of the primary's model to this machine; None: the pipeline's. Raises as `primary` does."""
        return self._fetch(
            self.name, self.pipeline.wanted_version if version is None else version, self.pipeline.at("model")
        )

    def release(self) -> None:
        """Tell the source that this process no longer uses what was fetched. The versions can't be loaded any more."""
        while self._fetched:
            _, fetched = self._fetched.popitem()
            self.source.release(fetched.folder)

    def pinned(self, version: int) -> Pipeline:
        """The pipeline with this version in place of its own, one copy of the model and no shadows."""
        changed = {"instances": 1, "concurrent_batches": 1}
        return with_version(self.pipeline, version, **changed).model_copy(update={"shadows": ()})

    def shadow(self, shadow: Shadow) -> ModelVersion:
        """The model of a shadow. Raises as `primary` does."""
        return self._loaded(*self.pipeline.shadow_model(shadow), ("shadows",), None)

    def member(self, named: NamedModel, place: Loc) -> ModelVersion:
        """A model of `models`, at this place within the section. Raises as `primary` does."""
        advice = f"write `{{name: {named.name}, version: {{version}}}}` in place of the name"
        return self._loaded(named.name, named.version, ("models", *place), named.inputs, advice)

    def tenant(self, name: str, version: int) -> ModelVersion:
        """A model of a tenant. Raises as `primary` does."""
        return self._loaded(name, version, ("models", "tenants"), None)

    def first_tenant(self, name: str) -> tuple[str, int] | None:
        """See `tenant_folders.first_tenant`.

        Raises:
            SourceUnavailable: the folder is away.
            ModelConfigError: this user may not read it.
        """
        repository = self.pipeline.model.repository
        assert isinstance(repository, Path)  # see `pipeline.conflicts`
        return self.source.read(partial(first_tenant, repository, name))

    def tenant_versions(self, name: str) -> list[int]:
        """See `tenant_folders.versions_of`. Raises as `first_tenant` does."""
        repository = self.pipeline.model.repository
        assert isinstance(repository, Path)  # see `pipeline.conflicts`
        return self.source.read(partial(versions_of, repository, name))

    def _loaded(
        self, name: str, wanted: Wanted, section: Loc, fields: Fields | None, advice: str = NAME_VERSION
    ) -> ModelVersion:
        pipeline = self.pipeline
        place, where = pipeline.at(*section), pipeline.model.repository
        if not isinstance(where, str) and not isinstance(wanted, str):
            # In a folder, `load_version` finds the version, and says what to do about what lies there in its place.
            mapped_at = self._mapped_at(section, fields)
            found = self.source.read(
                lambda _: load_version(where, name, wanted, fields, mapped_at, place, pipeline.environ, advice)
            )
            self.source.fetch(name, found.version)  # checks its files, if it has checksums
            return found
        fetched = self._fetch(name, wanted, place)
        return self._read(name, fetched.version, fetched.folder, fields, section)

    def _read(self, name: str, version: int, folder: Path, fields: Fields | None, section: Loc) -> ModelVersion:
        mapped_at = self._mapped_at(section, fields)
        remote = self.source.remote
        return self.source.read(
            lambda _: read_version(folder, name, version, fields, mapped_at, self.pipeline.environ, remote=remote)
        )

    def _mapped_at(self, section: Loc, fields: Fields | None) -> partial[str]:
        """Returns the place of a model's inputs in the pipeline file."""
        return partial(self.pipeline.at, *(section if fields else ("model",)), "inputs")

    def _fetch(self, name: str, wanted: Wanted, place: str) -> Fetched:
        found = self._fetched.get((name, wanted))
        if found is None:
            found = self._fetched[name, wanted] = fetch_at_start(self.source, name, wanted, place)
        return found


def with_version(pipeline: Pipeline, version: int, **settings: int) -> Pipeline:
    """The pipeline with this version in place of its own. `settings`: other options of its model."""
    model = pipeline.model
    changed = {"version": version, "repository": without_version(model.repository, same=True), **settings}
    return pipeline.model_copy(update={"model": model.model_copy(update=changed)})


def repository_of(pipeline: Pipeline) -> Repository:
    """Where the pipeline's models are. It contains secrets: never print them."""
    model = pipeline.model
    url = mlflow_url(model.repository)
    return Repository(
        model.repository,
        pipeline.model_cache,
        model.cache_size,
        {model.name: url.name} if url is not None and url.name is not None else {},
        {name: value.get_secret_value() for name, value in model.client.items()},
        pipeline.at("model", "client"),
    )
