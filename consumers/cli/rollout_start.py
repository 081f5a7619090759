"""What a rollout is to start with: its strategy and its versions, checked before anything changes."""

import argparse
from collections.abc import Sequence
from typing import cast

from millstream.consumers.cli.rollout_words import OTHER_INPUTS
from millstream.consumers.control.errors import CommandRefusedError
from millstream.consumers.control.topic import rollout_of
from millstream.consumers.models.loadable import refuse_unloadable
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.rollout.changes import Entry, standing
from millstream.consumers.rollout.declared import steps_of
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.steps import Steps
from millstream.consumers.serving.misfit import REQUESTING, misfit
from millstream.inference.repository import ModelVersion
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.rollout_conflicts import strategy_conflicts
from millstream.pipeline.rollout_section import BASELINE, CANDIDATE, Rollout, Strategy
from millstream.pipeline.shares import SLOTS, share_text
from millstream.schemas.wording import dotted

OTHER = "Start the rollout of another version"


def entry_of(pipeline: Pipeline, current: RolloutRecord | None, args: argparse.Namespace) -> tuple[Steps, Entry]:
    """The steps and versions of the rollout that the command line asks for. The versions are fetched, and released again.

    Raises:
        CommandRefusedError: the strategy lacks something, or a version can't take part.
        ModelConfigError: there is no such version, its config.yaml is wrong, or its model can't be loaded.
        SourceUnavailable: the repository is away, and a version is not in the cache.
    """
    rollout = rollout_of(pipeline)
    strategy = cast("Strategy", args.strategy or rollout.strategy)
    if wrong := [f"{dotted(place)}: {said}" for place, said in strategy_conflicts(pipeline, rollout, strategy)]:
        raise CommandRefusedError(f"start: {strategy} can't run with {pipeline.named}. {' '.join(wrong)}")
    _refuse_share(strategy, args.share)
    baseline, versions = _fitting(pipeline, _baseline(pipeline, current), _wanted(pipeline, strategy, args))
    if strategy == "blue-green":
        _refuse_without_shadow(pipeline, versions[0])
    numbers = tuple(version.version for version in versions)
    _refuse_arms(rollout, numbers)
    _refuse_twice(current, numbers, strategy)
    names = [f"v{number}" for number in numbers] if strategy == "bandit" else [CANDIDATE]
    entry = Entry(
        pipeline.name,
        pipeline.model.name,
        baseline.version,
        numbers,
        (BASELINE, *names),
        strategy,
        "advise" if strategy == "manual" else rollout.mode,
        args.share,
    )
    return steps_of(rollout, strategy), entry


def _fitting(
    pipeline: Pipeline, baseline: int | None, wanted: Sequence[int | str]
) -> tuple[ModelVersion, list[ModelVersion]]:
    """The baseline, and the versions that fit beside it. Workers load them, not this process, so it keeps none in use."""
    models = PipelineModels(pipeline)
    try:
        answers = models.wanted(baseline)
        versions = [models.wanted(version) for version in wanted]
        for version in versions:
            _refuse_unfit(answers, version)
            refuse_unloadable(pipeline, version)
        return answers, versions
    finally:
        models.release()


def _baseline(pipeline: Pipeline, current: RolloutRecord | None) -> int | None:
    """The version that answers now; None: the pipeline file's, also if the record is about another model than the file."""
    if current is None or standing(current).model != pipeline.model.name:
        return None
    return standing(current).version


def _refuse_arms(rollout: Rollout, versions: tuple[int, ...]) -> None:
    """Refuse versions that are named twice, and more than their least shares allow."""
    if len(set(versions)) < len(versions):
        raise CommandRefusedError(f"start: expected each version once, found {', '.join(map(str, versions))}.")
    if rollout.least_share * (1 + len(versions)) > SLOTS:
        raise CommandRefusedError(
            f"start: expected at most {SLOTS // rollout.least_share} arms with the baseline, because each keeps "
            f"{share_text(rollout.least_share)} (`rollout.least_share`); found {1 + len(versions)}."
        )


def _wanted(pipeline: Pipeline, strategy: Strategy, args: argparse.Namespace) -> Sequence[int | str]:
    rollout = rollout_of(pipeline)
    named: Sequence[int | str] = args.versions
    if not named:
        candidate = [] if rollout.candidate is None else [rollout.candidate]
        named = rollout.arms or () if strategy == "bandit" else candidate
    if not named:
        raise CommandRefusedError(
            "start: expected the candidate's version, found none. Write for example: millstream rollout start PIPELINE 2"
        )
    if len(named) > 1 and strategy != "bandit":
        raise CommandRefusedError(
            f"start: expected one version with `{strategy}`, found {', '.join(map(str, named))}. Only a bandit has several."
        )
    return named


def _refuse_share(strategy: Strategy, share: int | None) -> None:
    if share is not None and strategy not in ("ab", "manual"):
        raise CommandRefusedError(
            f"--share: expected `--strategy ab` or `manual` beside it, found {strategy}, whose shares are in the pipeline file. "
            "Leave it out."
        )
    if share in (0, SLOTS) and strategy == "ab":
        raise CommandRefusedError(f"--share: expected more than 0% and less than 100%, found {share_text(share or 0)}.")


def _refuse_unfit(baseline: ModelVersion, version: ModelVersion) -> None:
    if version.version == baseline.version:
        raise CommandRefusedError(
            f"start: expected another version than the baseline, found {version.version}, which answers already."
        )
    if version.executor in REQUESTING:
        raise CommandRefusedError(
            f"{version.place}: expected a model that runs in the worker, found the executor {version.executor}, which sends "
            "requests to a server. Change the version there."
        )
    if (said := misfit(baseline, version, OTHER)) is not None:
        raise CommandRefusedError(
            f"{said} Both versions of a rollout answer in the same worker, so they must fit each other. To let one take the "
            f"place of the other without a rollout: {OTHER_INPUTS}."
        )


def _refuse_without_shadow(pipeline: Pipeline, version: ModelVersion) -> None:
    shadows = [pipeline.shadow_model(shadow) for shadow in pipeline.shadows]
    if (version.name, version.version) not in shadows:
        listed = ", ".join(f"{name} {number}" for name, number in shadows)
        raise CommandRefusedError(
            f"start: blue-green needs a shadow of version {version.version}, because only a shadow shows its answers before the "
            f"switch; found {listed}. Change `shadows`, and restart the workers; or use `--strategy manual`."
        )


def _refuse_twice(current: RolloutRecord | None, versions: tuple[int, ...], strategy: str) -> None:
    """Refuse what is on its way already: it would begin from its first step again."""
    if current is None or current.state in ENDED or current.strategy != strategy:
        return
    if versions == tuple(variant.version for variant in current.variants[1:]):
        raise CommandRefusedError(
            f"start: the {strategy} rollout of version {', '.join(map(str, versions))} is on its way already ({current.state}, "
            f"revision {current.revision}: {current.by} made the change {current.action!r}). `millstream rollout status "
            "PIPELINE` shows it; to begin anew, roll it back first."
        )
