"""Finds values of the section `rollout` that are valid alone, but not together, or not with the rest of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.pipeline.repository import mlflow_url
from millstream.pipeline.rollout_metrics import TASKS
from millstream.pipeline.shares import SLOTS, parse_share, share_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.pipeline.pipeline import Pipeline
    from millstream.pipeline.rollout_section import Rollout, Strategy
    from millstream.schemas.wording import Loc

_OPTIONS_OF = {
    "steps": ("canary",),
    "share": ("ab",),
    "arms": ("bandit",),
    "approve": ("canary", "blue-green"),
    "candidate": ("canary", "blue-green", "ab"),
    "start_after_shadow": ("canary", "blue-green", "ab"),
}
"""Option -> the strategies that use it. It is refused beside another one, because it would do nothing."""


def rollout_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    """Yield the places of such values, with the problem."""
    rollout = pipeline.rollout
    if rollout is None:
        return
    yield from _model_conflicts(pipeline)
    for option, strategies in _OPTIONS_OF.items():
        if getattr(rollout, option) and rollout.strategy not in strategies:
            yield (
                ("rollout", option),
                f"expected `strategy: {strategies[0]}` beside it, found `strategy: {rollout.strategy}`, which does not use it. "
                "Leave one of them out.",
            )
    if rollout.start_after_shadow is not None and not pipeline.shadows:
        yield (
            ("rollout", "start_after_shadow"),
            "expected `shadows:` with the candidate's version, found none. Write for example `shadows: [{version: 2}]`, or leave "
            "it out.",
        )
    yield from _step_conflicts(rollout)
    yield from _metric_conflicts(pipeline, rollout)
    yield from _field_conflicts(pipeline, rollout)
    yield from strategy_conflicts(pipeline, rollout, rollout.strategy)


def strategy_conflicts(pipeline: Pipeline, rollout: Rollout, strategy: Strategy) -> Iterator[tuple[Loc, str]]:
    """What a strategy needs and the file lacks; the strategy may be another one than the file's."""
    if strategy == "manual":
        return
    if pipeline.labels is None and rollout.least_labels > 0:
        yield (
            ("rollout", "strategy"),
            f"expected `labels:`, because `strategy: {strategy}` compares the versions by them; found none. Write `labels:`, or "
            "`rollout.least_labels: 0` to judge by errors and latency only.",
        )
    elif not rollout.quality(pipeline.comparison.task, labels=pipeline.labels is not None) and rollout.least_labels > 0:
        yield (
            ("rollout", "metrics"),
            "expected a metric of quality, because `task: regression` has no default for its margin; found none. Write for "
            f"example: metrics: {{{_example('regression')}}}.",
        )
    if [*rollout.metrics.quality] == ["reward"] and (
        strategy == "blue-green" or rollout.start_after_shadow is not None
    ):
        yield (
            ("rollout", "metrics", "reward"),
            "expected another metric of quality beside it, because a shadow has no reward of its own: only the primary's answer "
            f"leads to one. Found none. Write for example `{_example(pipeline.comparison.task)}` under `metrics:`.",
        )
    if strategy == "blue-green" and not pipeline.shadows:
        yield (
            ("rollout", "strategy"),
            "expected `shadows:` with the candidate's version, because only a shadow shows its answers before the switch; found "
            "none. Write for example `shadows: [{version: 2}]`, or `strategy: manual` to switch by command.",
        )
    if strategy == "bandit":
        if rollout.arms is None:
            yield (
                ("rollout", "arms"),
                "expected the versions beside the baseline, found nothing. Write for example: arms: [2, 3].",
            )
        if rollout.metrics.reward is None:
            yield (
                ("rollout", "metrics"),
                "expected `reward`, because a bandit's shares follow it; found none. Write for example: "
                "metrics: {reward: {field: revenue, margin: 0.5}}.",
            )


def _example(task: str) -> str:
    """A metric of quality."""
    return "absolute_error: {margin: 0.5}" if task == "regression" else "accuracy: {margin: 0.01}"


def _model_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    if pipeline.models is not None:
        yield (
            ("rollout",),
            "expected no rollout beside `models`: it changes the version of one model, found several. Leave it out, or use "
            "`model`.",
        )
        return
    if isinstance(pipeline.wanted_version, str):
        url = mlflow_url(pipeline.model.repository)
        in_url = url is not None and url.version is not None
        yield (
            ("model", "repository" if in_url else "version"),
            f"expected a number beside `rollout`, found {pipeline.wanted_version}: the rollout alone decides which version "
            "answers. Write the number of the version that answers now; `rollout.candidate` may be an alias.",
        )
    elif pipeline.rollout is not None and pipeline.wanted_version in (pipeline.rollout.arms or ()):
        yield (
            ("rollout", "arms"),
            f"version {pipeline.wanted_version} is the baseline (model.version), which is an arm already. Leave it out.",
        )


def _step_conflicts(rollout: Rollout) -> Iterator[tuple[Loc, str]]:
    shares = rollout.step_shares()
    if rollout.steps is not None and not _rises(shares):
        yield (
            ("rollout", "steps"),
            f"expected rising shares above 0% and below 100%, found {_listed(shares)}. After the last one, the candidate gets "
            "100% anyway.",
        )
    if rollout.share is not None and not 0 < rollout.share < SLOTS:
        yield ("rollout", "share"), f"expected more than 0% and less than 100%, found {share_text(rollout.share)}."
    allowed = (*shares[1:], SLOTS)  # nobody waits for the first one: `start` begins it
    for share in rollout.approve:
        if share not in allowed:
            yield (
                ("rollout", "approve"),
                f"expected shares of {_listed(allowed)}, found {share_text(share)}. The first step begins with the rollout.",
            )
    if len(set(rollout.arms or ())) < len(rollout.arms or ()):
        yield ("rollout", "arms"), f"expected each version once, found {list(rollout.arms or ())}. Remove one."
    one, arms = parse_share(1), 1 + len(rollout.arms or ())
    if rollout.least_share < one or rollout.least_share % one or rollout.least_share * arms > SLOTS:
        yield (
            ("rollout", "least_share"),
            f"expected whole percent, at least 1% and together at most 100% for {arms} arms, found "
            f"{share_text(rollout.least_share)}.",
        )


def _rises(shares: Sequence[int]) -> bool:
    return all(one < other for one, other in zip((0, *shares), (*shares, SLOTS), strict=True))


def _listed(shares: Sequence[int]) -> str:
    return ", ".join(map(share_text, shares))


def _metric_conflicts(pipeline: Pipeline, rollout: Rollout) -> Iterator[tuple[Loc, str]]:
    task, named = pipeline.comparison.task, rollout.metrics.quality
    for name in named:
        if task not in TASKS.get(name, (task,)):
            yield (
                ("rollout", "metrics", name),
                f"expected `comparison.task: {' or '.join(TASKS[name])}` beside it, found {task}. Leave it out, or correct the "
                "task.",
            )
    if named and pipeline.labels is None:
        yield (
            ("rollout", "metrics", next(iter(named))),
            "expected `labels:` beside it, found none: it can't be computed without them. Write `labels:`, or leave it out.",
        )
    if rollout.maturity is not None and pipeline.labels is None:
        yield ("rollout", "maturity"), "expected `labels:` beside it, found none: only labels mature. Leave it out."


def _field_conflicts(pipeline: Pipeline, rollout: Rollout) -> Iterator[tuple[Loc, str]]:
    drift = rollout.metrics.input_drift
    asked: list[tuple[Loc, Sequence[str]]] = [(("rollout", "segments"), rollout.segments)]
    if drift is not None:
        asked.append((("rollout", "metrics", "input_drift", "fields"), drift.fields))
    included = pipeline.output.include
    lacking = {place: [field for field in fields if field not in included] for place, fields in asked}
    # Each message has the fields of all places: whoever follows the first one should not have to follow another.
    whole = ", ".join(dict.fromkeys([*included, *(field for missing in lacking.values() for field in missing)]))
    for place, missing in lacking.items():
        if missing:
            yield (
                place,
                f"expected fields of `output.include`, found {', '.join(missing)}: autopilot reads predictions, which have only "
                f"those. Write `include: [{whole}]` under `output:`.",
            )
