"""Loads a version beside the one that is served, checks it against that one, and warms it up."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from millstream.consumers.decode.named_fields import time_format
from millstream.consumers.errors import PlanError
from millstream.consumers.execute.variant_run import outputs_misfit
from millstream.consumers.serving.errors import NotServed, Reason
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.misfit import RESTART, misfit
from millstream.consumers.serving.wanted_now import Target
from millstream.consumers.worker.plan import Plan, check_outputs, open_copies
from millstream.inference.errors import ModelConfigError, ModelRejected, SourceUnavailable
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import ModelExecutor, Tensors
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.repository import ModelVersion
from millstream.inference.sources.cached import CachedSource
from millstream.schemas.failures import failure_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model whose versions are loaded: that of `model`, or one of `models`."""

    first: ModelVersion  # that the worker started with
    folder: Path | None  # of it, which the source keeps for this process; None: it need not
    read: Callable[[int, Path], ModelVersion]  # reads the config.yaml of a version in this folder
    open: Callable[
        [ModelVersion, object], list[ModelExecutor]
    ]  # loads the copies of a version, beside another's executor
    is_predicted: bool = True  # whether predictions have its outputs


def primary_of(plan: Plan) -> LoadedModel:
    """The model of `model`. Raises as `PipelineModels.primary` does."""
    return LoadedModel(
        plan.model, plan.models.fetch_primary().folder, plan.models.read, partial(open_copies, plan.pipeline)
    )


class VersionLoader:
    """Loads versions of a model. Threads may share it."""

    def __init__(
        self,
        plan: Plan,
        model: LoadedModel,
        sample: Tensors | ModelRejected | None = None,
        *,
        advice: str = RESTART,
        may_reject_blank: bool = False,
        compared_with: str = "the baseline",
    ) -> None:
        """Args:
        plan: the pipeline.
        model: whose versions are loaded.
        sample: outputs whose types and shapes each version must have, or why they aren't known, which no version can fit; None:
            only the names of outputs must be the same.
        advice: what to do, if a version that is refused is to be served as it is.
        may_reject_blank: whether a version is put to work that rejects a blank event.
        compared_with: how messages name the version that has the outputs of the sample.
        """
        self._plan = plan
        self._model = model
        self._sample = sample
        self._advice = advice
        self._may_reject_blank = may_reject_blank
        self._compared_with = compared_with

    def first(self, opened: OpenedModel) -> Loaded:
        """The version that the worker started with, which is opened already."""
        return Loaded(None, self._model.first, opened, self._model.folder)

    def started_with(self, target: Target, first: Loaded) -> bool:
        """See `Loader`. The content in a cache has a name. That of a folder is taken for the one that was loaded just before."""
        source = self._plan.models.source
        if not isinstance(source, CachedSource) or first.folder is None:
            return True
        return source.digest(first.model.name, target.version, target.fingerprint) == first.folder.name

    def load(self, target: Target, served: Loaded) -> Loaded:
        """Load and warm up a version. It raises NotServed if the version can't take the place of the one that is served."""
        models = self._plan.models
        try:
            folder = models.source.fetch(served.model.name, target.version)
        except SourceUnavailable as error:
            raise NotServed("unavailable", str(error), transient=True) from error
        except Exception as error:
            raise _refusal("repository", error) from error
        try:
            return self._loaded(target, folder, served)
        except BaseException:
            models.source.release(folder)
            raise

    def unload(self, loaded: Loaded) -> None:
        """Free what a version takes. An error in it is only logged."""
        try:
            loaded.opened.close()
        except Exception:
            log.exception("%s was not closed", loaded.model.place)
        if loaded.folder is not None:
            with suppress(Exception):  # the cache may be gone
                self._plan.models.source.release(loaded.folder)

    def _loaded(self, target: Target, folder: Path, served: Loaded) -> Loaded:
        try:
            model = self._model.read(target.version, folder)
            model = model.with_time_formats(partial(time_format, self._plan.reader))
        except Exception as error:
            raise _refusal("load", error) from error
        if (difference := misfit(served.model, model, self._advice)) is not None:
            raise NotServed("signature", difference)
        beside = served.opened.executors[0]
        try:
            executors = self._model.open(model, beside)
        except Exception as error:
            raise _refusal("load", error) from error
        try:
            self._warm_up(model, executors, beside)
        except BaseException:
            OpenedModel(model.id, executors).close()
            raise
        return Loaded(target, model, OpenedModel(model.id, executors), folder)

    def _warm_up(self, model: ModelVersion, executors: Sequence[ModelExecutor], served: object) -> None:
        first = executors[0]
        _check_kind(model, first, served, self._advice)
        try:
            for executor in executors:
                executor.warm_up()
            answered = check_outputs(model, first, encode=self._model.is_predicted)
        except Exception as error:
            raise _refusal("warm_up", error) from error
        if isinstance(answered, ModelRejected):  # nothing shows that it would answer a real event
            if self._may_reject_blank:
                return
            raise NotServed(
                "warm_up",
                f"{model.place}: it rejects a blank event: {answered}. Only a real event can show whether it works: run "
                f"`millstream predict` with it. {self._advice}.",
            )
        self._check_outputs(model, answered)

    def _check_outputs(self, model: ModelVersion, answered: Tensors) -> None:
        """Check that the outputs of a blank event are those that are expected. Raises NotServed."""
        sample = self._sample
        if isinstance(sample, ModelRejected):
            raise NotServed(
                "signature",
                f"{model.place}: its outputs can't be compared with those of version {self._model.first.version}, because that "
                f"one rejects a blank event: {sample}. {self._advice}.",
            )
        if sample is not None and (difference := outputs_misfit(sample, answered, self._compared_with)) is not None:
            raise NotServed("signature", f"{model.place}: {difference}")


def _check_kind(model: ModelVersion, new: ModelExecutor, served: object, advice: str) -> None:
    """Check that the pool of the served executor can run the new one. Raises NotServed. `advice`: see `VersionLoader`."""
    if isinstance(new, BlockingExecutor) != isinstance(served, BlockingExecutor):
        raise NotServed(
            "signature",
            f"{model.place}: its executor {model.executor} runs batches in another way than the one that is served: one of them "
            f"sends requests to a server. {advice}.",
        )
    if (
        isinstance(new, BlockingExecutor)
        and isinstance(served, BlockingExecutor)
        and new.executor.limits.has_quota
        and not served.executor.limits.has_quota
    ):
        raise NotServed(
            "signature",
            f"{model.place}: it has a quota of requests or tokens per minute, and the version that is served has none. {advice}.",
        )
    if new.device == "cuda" and model.runtime.cuda_graphs:
        raise NotServed(
            "load",
            f"{model.place}: a CUDA graph can't be captured while another version runs on the GPU, so a version with "
            f"`runtime.cuda_graphs` isn't loaded beside it. {advice}, or leave the option out.",
        )


def _refusal(reason: Reason, error: Exception) -> NotServed:
    """Why a version isn't put to work after this error."""
    if isinstance(error, NotServed):
        return error
    said = str(error) if isinstance(error, ModelConfigError | PlanError) else f"{type(error).__name__}: {error}"
    away = failure_of(error) == "wait"
    return NotServed("unavailable" if away else reason, said, transient=away)
