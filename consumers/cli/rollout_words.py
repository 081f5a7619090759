"""Shows the state of a rollout and its history: for people, and as JSON."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from textwrap import shorten
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millstream.consumers.control.state import Seen
from millstream.consumers.control.topic import rollout_of
from millstream.consumers.rollout.change_text import change_text
from millstream.consumers.rollout.changes import Memory, allowed, standing
from millstream.consumers.rollout.declared import metric_rules, steps_of
from millstream.consumers.rollout.judging import Levels, MetricRule
from millstream.consumers.rollout.latencies import LATENCY
from millstream.consumers.rollout.power import POWER, required_events
from millstream.consumers.rollout.progress import ENDED, Progress
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.rounded import about, span
from millstream.consumers.rollout.slots import percent
from millstream.consumers.rollout.steps import Steps, following_step, listed_commands
from millstream.consumers.shadow.shadow_plan import live_shadows
from millstream.inference.model_id import ModelId
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable
from millstream.pipeline.rollout_section import BASELINE, Rollout
from millstream.pipeline.shares import SLOTS
from millstream.schemas.wording import counted

PIPED_WIDTH: Final = 1000  # columns of output that doesn't go to a terminal: one line per change, for `grep`
MOST_REASON: Final = 160  # characters in the history: one sentence, as autopilot writes it
_WAITING: Final = ("paused", "awaiting_approval")  # states that begin in the middle of a step
OTHER_INPUTS: Final = "`millstream docs rollouts#a-version-with-other-inputs`"
DELETED: Final = "the record was deleted: the pipeline file's version answers"


def without_rollout(pipeline: Pipeline) -> list[str]:
    """What holds while the topic has no record."""
    version = "the only version" if pipeline.wanted_version is None else f"version {pipeline.wanted_version}"
    return [f"rollout   none: {version} of {pipeline.model.name} answers all events"]


def status_lines(pipeline: Pipeline, record: RolloutRecord, now: int, seen: Sequence[Seen] = ()) -> list[str]:
    """The state. `now`: ms since the epoch; `seen`: all records of the topic, the oldest first."""
    lines = [
        f"rollout   {record.rollout}: {record.strategy} of {_candidates(record)}, revision {record.revision}",
        f"state     {_state(pipeline, record, now, seen)}",
    ]
    widths = [max(len(variant.name) for variant in record.variants), max(len(_version(own)) for own in record.variants)]
    lines += [
        f"variant   {variant.name:<{widths[0]}}  {_version(variant):<{widths[1]}}  {percent(share):>7}"
        for variant, share in zip(record.variants, record.shares, strict=True)
    ]
    lines += [f"override  {line}" for line in _overrides(record)]
    lines.append(f"change    {change_line(record)}")
    return [printable(line) for line in [*lines, *file_notes(pipeline, record)]]


def change_line(record: RolloutRecord) -> str:
    """The change that led to a record, on one line."""
    return f"{_time(record.at)} {change_text(record)}"


def step_lines(pipeline: Pipeline, before: RolloutRecord | None, record: RolloutRecord) -> list[str]:
    """After `set --share` and `resume`: with which step the rollout goes on, and what comes after it.

    An override begins no step anew, although its command is `set`, too.
    """
    steps = steps_of(rollout_of(pipeline), record.strategy)
    if before is None or not steps.shares or record.action not in ("set", "resume"):
        return []
    progress = Memory.of(record).progress
    if progress.epoch == Memory.of(before).progress.epoch:
        return []
    share = percent(progress.share)
    if progress.share == SLOTS:
        begun, after = f"the watch at {share}", "the candidate is promoted"
        old = "the candidate's events from before don't count, but the baseline's from before 100 % still do"
    else:
        begun = f"{_step_of(steps, progress) or 'a step'} at {share}"
        after = _after(steps, progress)
        old = "what was evaluated before doesn't count"
    goes_on = f"`resume` begins {begun}" if record.state == "paused" else f"{begun} has begun"
    return [f"next      {goes_on} anew: {old}. When it has passed, {after}"]


def _after(steps: Steps, progress: Progress) -> str:
    """What comes after the current step."""
    following = following_step(steps, progress)
    if following >= len(steps.shares) and steps.finish == "report":
        return "the test is concluded"
    share = steps.shares[following] if following < len(steps.shares) else SLOTS
    approved = ", if somebody approves it" if following in steps.approvals else ""
    return f"the candidate gets {percent(share)}{approved}"


def _step_of(steps: Steps, progress: Progress) -> str:
    """The current step's number; empty if it is none of the strategy's."""
    rest = " before 100 %" if steps.finish == "promote" else ""
    return f"step {progress.step + 1} of {len(steps.shares)}{rest}" if progress.step < len(steps.shares) else ""


def history_table(seen: Sequence[Seen]) -> Table:
    """All records that the topic still has, the oldest first. Long reasons are cut: JSON has them as they are."""
    table = Table(box=None, pad_edge=False)
    for heading in ("revision", "time (UTC)", "by", "action", "candidate", "before", "after"):
        table.add_column(heading, no_wrap=True)
    table.add_column("reason", overflow="fold")
    for own in seen:
        table.add_row(*(Text(printable(cell)) for cell in _history_row(own)))
    return table


def print_table(table: Table) -> None:
    """Print it as wide as the terminal; to a file, one line per row."""
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)


def as_json(pipeline: Pipeline, record: RolloutRecord | None, problem: str) -> dict[str, Any]:
    """The state, for programs. Shares are in percent, times in ISO 8601 (UTC)."""
    if record is None:
        version = pipeline.wanted_version
        variant = {"name": BASELINE, "model": pipeline.model.name, "version": version, "share": 100.0}
        return {
            "pipeline": pipeline.name,
            "state": "unknown" if problem else "none",
            "variants": [] if problem else [variant],
            "problem": problem,
        }
    # Autopilot follows the file, also if the rollout started with another mode.
    mode = _mode(rollout_of(pipeline).mode, record)
    return {**_record(record), "mode": mode, "allowed": list(_allowed(record)), "problem": problem}


def seen_as_json(own: Seen) -> dict[str, Any]:
    """A record of the topic, for programs."""
    record = {} if own.record is None else _record(own.record)
    return {"offset": own.offset, **record, "counts": own.counts, "problem": own.problem}


def rollout_lines(pipeline: Pipeline) -> list[str]:
    """What the section `rollout` means, and what a replay could not check."""
    lines, included = _section_lines(pipeline), pipeline.output.include
    if missing := [field for field in rollout_of(pipeline).override_fields if field not in included]:
        lines.append(
            f"overrides by {', '.join(missing)}: `millstream replay` can't check them, because predictions don't have the field. "
            "Add it to `output.include` if it should"
        )
    return lines


def _section_lines(pipeline: Pipeline) -> list[str]:
    """The strategy, and what a step needs."""
    rollout = rollout_of(pipeline)
    named = f"version {rollout.candidate}"
    if rollout.candidate is None:
        won = "" if rollout.start_after_shadow is None else "a shadow's version that has won, or of "
        named = f"{won}a version that `millstream rollout start` names"
    steps = steps_of(rollout)
    match rollout.strategy:
        case "canary":
            what = f"canary of {named}: {', '.join(map(percent, steps.shares))}, then 100 %"
        case "blue-green":
            what = f"blue-green of {named}: shadows judge it at 0 %, then 100 % at once"
        case "ab":
            what = f"A/B test of {named}: {percent(steps.shares[0])}, then a report"
        case "bandit":
            arms = ", ".join(map(str, rollout.arms or ()))
            return [
                f"bandit of versions {arms} beside the baseline: shares follow `{_reward(pipeline)}`",
                _latency_line(rollout),
                f"errors, latency and quality are evaluated anew every {_span(rollout.longest)}",
            ]
        case "manual":
            return [f"manual, of {named}: only commands change anything"]
    acts = "autopilot only advises" if rollout.mode == "advise" else f"a breach leads to {rollout.on_breach}"
    labels = f", {rollout.least_labels} labels" if rollout.least_labels else ""
    judged = ", ".join([*(rule.name for rule in metric_rules(pipeline)), LATENCY])
    return [
        what,
        f"each step takes {_span(rollout.bake)}{labels} or more, and is judged by {judged}; {acts}",
        _latency_line(rollout),
        f"a step that takes longer than {_span(rollout.longest)} is inconclusive: it is held, and may still pass",
        *_ending_lines(rollout),
        *(_size_lines(pipeline, steps.shares) if rollout.strategy in ("canary", "ab") else ()),
        *_unbounded_lines(pipeline),
    ]


def _latency_line(rollout: Rollout) -> str:
    """The limit of the model calls' time."""
    limit, quantile = rollout.metrics.latency.at_most, rollout.metrics.latency.quantile
    which = f"slowest {100 * (1 - quantile):.3g} % of events" if quantile else "events"
    return (
        f"latency: the model calls of the candidate's {which} may take {limit:g} times as long as the baseline's. It passes "
        "when they are shown to take less, and is breached when they are shown to take more"
    )


def _ending_lines(rollout: Rollout) -> list[str]:
    """For whom steps wait, and how the rollout ends; nothing for an A/B test, which ends with its report."""
    if rollout.strategy == "ab":
        return []
    asked = ", ".join(map(percent, rollout.approve))
    ends = (
        f"at 100 %, the candidate is watched for {_span(rollout.watch)}, and then promoted"
        if rollout.watch
        else "a candidate that passes its last step is promoted at once, and not watched at 100 %"
    )
    return [*([f"before {asked}, it waits for `millstream rollout approve`"] if asked else []), ends]


def _span(seconds: float) -> str:
    return span(round(seconds * 1000))


def _size_lines(pipeline: Pipeline, shares: Sequence[int]) -> list[str]:
    """How many labels show that each metric of quality is good enough, in a step with each of these shares."""
    rules = [rule for rule in metric_rules(pipeline) if not rule.service]
    lines = [_size_line(rule, shares, rollout_of(pipeline).level) for rule in rules]
    beside = "it may take longer until latency and the sample ratio pass, too: `millstream rollout status` says what they lack"
    return [*lines, beside] if lines else []


def _size_line(rule: MetricRule, shares: Sequence[int], level: float) -> str:
    """Shares of 50 % vary most, so that is a bound for metrics from 0 to 1. How much others vary is not known."""
    effect = rule.resolution
    benefit = rule.threshold + effect
    case = (
        "both versions are equally good"
        if abs(benefit) < 1e-9
        else f"the candidate is better by {_in_unit(rule, benefit)}"
    )
    promotion = Levels.of(level, level, guards=1).promotion
    deviation = 0.5 if rule.bounded else effect
    sizes = (required_events(deviation, effect, share / SLOTS, level=promotion).any_time for share in shares)
    told = [
        about(size) if len(shares) == 1 else f"{about(size)} at {percent(share)}"
        for size, share in zip(sizes, shares, strict=True)
    ]
    varies = (
        ""
        if rule.bounded
        else f", and its values have a standard deviation of {effect:g}: twice that needs four times as many"
    )
    most = "at most about" if rule.bounded else "about"
    return (
        f"{rule.name}: {most} {', '.join(told)} labelled events of both versions show it with a probability of {POWER:.0%}, "
        f"if {case}{varies}; many events of one key count as fewer"
    )


def _in_unit(rule: MetricRule, benefit: float) -> str:
    return f"{benefit:.1%}" if rule.bounded else f"{benefit:g}"


def _unbounded_lines(pipeline: Pipeline) -> list[str]:
    """Which metrics can't judge a shadow that answers exactly as the primary. It has no rewards."""
    rules = [rule for rule in metric_rules(pipeline) if not rule.service and rule.name != "reward"]
    lines = []
    for rule in rules if pipeline.shadows else ():
        said = f"{rule.name}: a shadow whose answers are all the same as the primary's stays undecided, because"
        if rule.threshold >= 0:
            lines.append(f"{said} equal answers can't show a benefit above {rule.threshold:g}")
        elif rule.largest is None:
            why = "nothing bounds an error"
            lines.append(f"{said} {why}. Write `bound` into rollout.metrics.{rule.name} if you know the largest one")
    return lines


def _reward(pipeline: Pipeline) -> str:
    reward = rollout_of(pipeline).metrics.reward
    return "reward" if reward is None else reward.field


def _state(pipeline: Pipeline, record: RolloutRecord, now: int, seen: Sequence[Seen]) -> str:
    """The state, since when, and what a person may do."""
    try:
        progress, commands = Memory.of(record).progress, f"commands: {listed_commands(record.state, allowed(record))}"
    except ValueError as error:
        return f"{record.state} ({error})"
    if record.state in ENDED:
        return f"{record.state}, since {_time(_since(record, seen))}; {commands}"
    steps = steps_of(rollout_of(pipeline), record.strategy)
    where = f", {step}" if (step := _step_of(steps, progress)) else ""
    advice = ", autopilot only advises" if _mode(steps.mode, record) == "advise" else ""
    since = _since(record, seen) if record.state in _WAITING else progress.since
    return f"{record.state}{where}{advice}, since {_time(since)} ({span(now - since)}); {commands}"


def _since(record: RolloutRecord, seen: Sequence[Seen]) -> int:
    """When the rollout came into its state, ms since the epoch, as far as the topic still tells: later changes may leave it."""
    found = record
    for own in reversed([each.record for each in seen if each.counts and each.record is not None]):
        if (own.rollout, own.state) != (record.rollout, record.state):
            break
        found = own
    return min(found.at, record.at)


def _allowed(record: RolloutRecord) -> Sequence[str]:
    try:
        return allowed(record)
    except ValueError:
        return ()


def _record(record: RolloutRecord) -> dict[str, Any]:
    names = [variant.name for variant in record.variants]
    return {
        "pipeline": record.pipeline,
        "revision": record.revision,
        "replaces": record.replaces,
        "at": _iso(record.at),
        "by": record.by,
        "action": record.action,
        "reason": record.reason,
        "emergency": record.emergency,
        "rollout": record.rollout,
        "strategy": record.strategy,
        "mode": _mode(record.mode, record),
        "state": record.state,
        "variants": [
            {"name": own.name, "model": own.model, "version": own.version, "share": share / 100}
            for own, share in zip(record.variants, record.shares, strict=True)
        ],
        "keys": [
            {"key": key.decode(errors="backslashreplace"), "hex": key.hex(), "variant": names[own]}
            for key, own in record.keys
        ],
        "fields": [
            {"field": own.field, "values": sorted(own.values), "variant": names[own.variant]} for own in record.fields
        ],
        "before": {"state": record.before_state, "shares": [share / 100 for share in record.before_shares]},
    }


def _mode(mode: str, record: RolloutRecord) -> str:
    """Who changes it: autopilot (`act`), a person whom autopilot advises (`advise`), or only a person (`manual`)."""
    return "manual" if record.strategy == "manual" else mode


def _history_row(own: Seen) -> Sequence[str]:
    record = own.record
    if record is None:
        what = DELETED if own.counts else own.problem
        return ("-", "-", "-", "-", "-", "-", "-", what)
    before = f"{_listed(record.before_shares)} {record.before_state}" if record.before_state else "-"
    named = len(record.keys) + sum(len(each.values) for each in record.fields)
    overrides = f", {counted(named, 'override')}" if named else ""
    after = f"{_listed(record.shares)} {record.state}{overrides}" if own.counts else "refused"
    reason = shorten(record.reason, MOST_REASON, placeholder=" ...") if own.counts else own.problem or "written twice"
    action = f"{record.action} (emergency)" if record.emergency else record.action
    versions = ", ".join(str(variant.version) for variant in record.variants[1:]) or "-"
    return (str(record.revision), _time(record.at), record.by, action, versions, before, after, reason)


def file_notes(pipeline: Pipeline, record: RolloutRecord) -> list[str]:
    """Where the pipeline file says something else than the record."""
    baseline, wanted = standing(record), pipeline.wanted_version
    if baseline.model != pipeline.model.name:
        place = pipeline.at("model", "name")
        return [f"note      {place} is {pipeline.model.name}, so workers don't follow this record: start a rollout"]
    if wanted in (None, baseline.version):
        return []
    same = live_shadows(pipeline, ModelId(baseline.model, baseline.version))
    # A file that names the version twice is refused.
    also = f", and take its shadow out ({same[0].name}: it is not compared with itself)" if same else ""
    verdict = ". `millstream compare` shows the shadow's verdict only with a copy of the file as it is" if same else ""
    is_dedicated = any(shadow.dedicated for shadow in pipeline.shadows if shadow not in same)
    restart = (
        f"then restart the workers with `--role shadow`, which compare with version {wanted} until then"
        if is_dedicated
        else "a restart is not needed"
    )
    # The file counts again if the topic is deleted, or is another one.
    return [
        f"note      {pipeline.at('model', 'version')} is {wanted}, but workers follow the rollout's record: version "
        f"{baseline.version}. Write {baseline.version} there{also}; {restart}{verdict}. If version {wanted} is to answer "
        f"instead, start a rollout; if its inputs or outputs differ: {OTHER_INPUTS}"
    ]


def _overrides(record: RolloutRecord) -> list[str]:
    names = [variant.name for variant in record.variants]
    lines = [f"key {key.decode(errors='backslashreplace')}: {names[variant]}" for key, variant in record.keys]
    if len(lines) > 10:
        lines = [f"{len(lines)} keys (--json lists them)"]
    return lines + [
        f"field {own.field} = {', '.join(sorted(own.values))}: {names[own.variant]}" for own in record.fields
    ]


def _candidates(record: RolloutRecord) -> str:
    return ", ".join(_version(variant) for variant in record.variants[1:]) or _version(record.variants[0])


def _version(variant: Any) -> str:
    return f"{variant.model} {variant.version}"


def _listed(shares: Sequence[int]) -> str:
    return "/".join(f"{share / 100:g}" for share in shares) + " %"


def _time(at: int) -> str:
    return _iso(at).removesuffix("Z").replace("T", " ")


def _iso(at: int) -> str:
    try:
        return datetime.fromtimestamp(at // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a foreign record may say anything
        return str(at)
