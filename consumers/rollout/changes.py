"""The record that a start, a decision or a command leads to. Pure: who and when come in as a `Change`.

A strategy's memory is in the record's `strategy_state`: the fields of `Progress`, and for a bandit also those of `Arms`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from millstream.consumers.rollout.bandit import Arms
from millstream.consumers.rollout.progress import ENDED, BadCommandError, Decision, Progress, State
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.revisions import Change, first_record, next_record
from millstream.consumers.rollout.routing import FieldOverride
from millstream.consumers.rollout.slots import percent, reallocated, whole
from millstream.consumers.rollout.steps import Steps, allowed_commands, commanded, listed_commands, started
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.consumers.rollout.progress import Action

ID_LETTERS: Final = 6
"""Of the change that starts a rollout, in its ID: if the control topic is created anew, revisions begin at 1 again."""
_OF_BANDIT: Final[dict[State, tuple[str, ...]]] = {
    "running": ("promote", "rollback", "pause", "set"),
    "paused": ("resume", "promote", "rollback", "set"),
    "promoted": ("rollback",),
}


@dataclass(frozen=True, slots=True)
class Memory:
    """What a strategy remembers."""

    progress: Progress
    arms: Arms | None = None  # of a bandit

    def to_json(self) -> str:
        """For the control record."""
        found = asdict(self.progress)
        return json.dumps(found if self.arms is None else found | {"arms": asdict(self.arms)})

    @classmethod
    def of(cls, record: RolloutRecord) -> Memory:
        """What the record remembers.

        Raises:
            ValueError: it is of a version of Millstream that this one doesn't understand.
        """
        progress = Progress.from_json(record.strategy_state)
        arms = json.loads(record.strategy_state).get("arms")
        try:
            return cls(progress, None if arms is None else Arms.of(arms))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"arms of a bandit: found {str(arms)[:80]} ({error}): start the rollout anew") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """What a rollout starts with."""

    pipeline: str
    model: str
    baseline: int  # version
    candidates: tuple[int, ...]  # versions; several only for a bandit
    names: tuple[str, ...]  # of the variants, the baseline's first
    strategy: str
    mode: str = "act"
    share: int | None = None  # the candidate's, in slots, in place of the first step's


@dataclass(frozen=True, slots=True)
class Command:
    """What a person asks for."""

    name: str  # step, promote, rollback, pause, resume, approve or set
    shares: Mapping[str, int] = field(default_factory=dict)  # variant -> slots, of `set`; "" is the only candidate
    variant: str = ""  # of `promote`; empty: the only candidate
    keys: Mapping[bytes, str] = field(default_factory=dict)  # routing key -> variant; empty: no override any more
    fields: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (field, value) -> variant, likewise


def started_record(steps: Steps, entry: Entry, current: RolloutRecord | None, change: Change) -> RolloutRecord:
    """The first record of a rollout. It may take the place of another one that is on its way.

    Args:
        steps: the strategy's; of a bandit those without shares.
        entry: what starts.
        current: the newest record, if there is one.
        change: without a reason, it gets one.
    """
    listed = f"{entry.model} {', '.join(map(str, entry.candidates))}"
    decision = started(steps, listed, change.at, _earlier(current), entry.share)
    shares: Sequence[int] = (SLOTS - decision.progress.share, decision.progress.share)
    memory = Memory(decision.progress)
    if entry.strategy == "bandit":
        arms = Arms.fresh(len(entry.names))
        memory, shares = Memory(replace(decision.progress, share=SLOTS - arms.shares[0]), arms), arms.shares
    revision = 1 if current is None else current.revision + 1
    record = RolloutRecord(
        entry.pipeline,
        revision,
        0,
        "",
        0,
        "",
        "",
        "",
        rollout=f"{entry.pipeline}-{entry.strategy}-{revision}-{change.change_id[:ID_LETTERS]}",
        strategy=entry.strategy,
        state=memory.progress.state,
        variants=tuple(
            RolloutVariant(name, entry.model, version)
            for name, version in zip(entry.names, (entry.baseline, *entry.candidates), strict=True)
        ),
        ranges=reallocated(whole(), shares),
        mode=entry.mode,
        strategy_state=memory.to_json(),
    )
    reason = change.reason or decision.reason
    return first_record(record, current, replace(change, action=decision.action, reason=reason))


def decided_record(
    current: RolloutRecord, decision: Decision, change: Change, arms: Arms | None = None, shares: Sequence[int] = ()
) -> RolloutRecord:
    """The record that a decision leads to.

    Overrides end with the rollout: a pinned key must not keep a version that was rolled back or replaced.

    Args:
        current: the record that was decided on.
        decision: what happens.
        change: who, when and why.
        arms: of a bandit, after the decision.
        shares: of all variants; without them, the candidate gets the progress's, and the baseline the rest.
    """
    progress = decision.progress
    record = next_record(
        current,
        replace(change, emergency=decision.emergency),
        expected=current.revision,
        state=progress.state,
        shares=shares or (SLOTS - progress.share, progress.share),
        strategy_state=Memory(progress, arms).to_json(),
    )
    if progress.state in ("promoted", "rolled_back"):
        return replace(record, keys=(), fields=())
    return record


def commanded_record(steps: Steps, current: RolloutRecord, command: Command, change: Change) -> RolloutRecord:
    """The record that a person's command leads to.

    Raises:
        BadCommandError: the rollout's state doesn't allow the command, or a variant or a share can't be.
        ValueError: the record is of a version of Millstream that this one doesn't understand.
    """
    memory = Memory.of(current)
    record = current
    if command.name != "set" or command.shares:
        record = (
            _by_bandit(current, memory, command, change)
            if memory.arms
            else _by_steps(steps, current, memory, command, change)
        )
    if command.keys or command.fields:
        record = _overridden(current, record, command, change)
    if record is current:
        raise BadCommandError("set: expected a share or an override, found neither. Write for example: --share 10%")
    return record


def allowed(record: RolloutRecord) -> tuple[str, ...]:
    """The commands that a state allows, besides `start`. Raises ValueError as `Memory.of`."""
    memory = Memory.of(record)
    if memory.arms is not None:
        return _OF_BANDIT.get(memory.progress.state, ())
    found = allowed_commands(memory.progress)
    return tuple(name for name in found if name != "step" or record.strategy != "manual")


def standing(record: RolloutRecord) -> RolloutVariant:
    """The variant that is the baseline of the next rollout."""
    return record.variants[record.baseline]


def variant_of(record: RolloutRecord, name: str) -> int:
    """The index of a variant; without a name, of the only candidate. Raises BadCommandError."""
    names = [variant.name for variant in record.variants]
    if not name and len(names) == 2:
        return 1
    if name not in names:
        raise BadCommandError(f"variant: expected one of {', '.join(names)}, found {name or 'none'}")
    return names.index(name)


def _earlier(current: RolloutRecord | None) -> Progress | None:
    if current is None or current.state in ENDED:
        return None
    try:
        return Progress.from_json(current.strategy_state)
    except ValueError:  # of another version of Millstream; a start replaces it
        return None


def _by_steps(steps: Steps, current: RolloutRecord, memory: Memory, command: Command, change: Change) -> RolloutRecord:
    if command.variant and variant_of(current, command.variant) != 1:
        raise BadCommandError("promote: expected the candidate, found the baseline: roll back instead")
    share = _shares(current, command.shares)[1] if command.shares else None
    now = max(change.at, current.at)
    decision = commanded(steps, memory.progress, command.name, now=now, reason=change.reason, share=share)
    # A manual rollout has no checks that somebody could skip.
    decision = replace(decision, emergency=decision.emergency and current.strategy != "manual")
    return decided_record(current, decision, change)


def _by_bandit(current: RolloutRecord, memory: Memory, command: Command, change: Change) -> RolloutRecord:
    progress, name = memory.progress, command.name
    if not change.reason.strip():
        raise BadCommandError(f"{name}: expected a reason, found none: it is kept in the rollout's history")
    if name not in (may := allowed(current)):
        raise BadCommandError(
            f"{name}: the bandit of {progress.candidate} is {progress.state}, which allows "
            f"{listed_commands(progress.state, may)}"
        )
    now = max(change.at, current.at)
    shares: Sequence[int] = current.shares
    state: State = "paused"
    match name:
        case "rollback":
            state, shares = "rolled_back", _all_for(current, 0)
        case "promote":
            state, shares = "promoted", _all_for(current, variant_of(current, command.variant))
        case "resume":
            state = "running"
        case "set":
            shares = _shares(current, command.shares)
    share = SLOTS - shares[0]
    after = (
        progress.begun(0, share, now, state)
        if name in ("resume", "set")
        else replace(progress, state=state, share=share)
    )
    action = cast("Action", name)  # one of `_OF_BANDIT`
    decision = Decision(action, change.reason, after)
    assert memory.arms is not None
    return decided_record(current, decision, change, replace(memory.arms, shares=tuple(shares)), shares)


def _all_for(record: RolloutRecord, variant: int) -> tuple[int, ...]:
    return tuple(SLOTS * (own == variant) for own in range(len(record.variants)))


def _shares(record: RolloutRecord, wanted: Mapping[str, int]) -> tuple[int, ...]:
    """The shares of all variants: those named as wanted, the others as they are, and the rest for the baseline."""
    shares = list(record.shares)
    for name, share in wanted.items():
        if (variant := variant_of(record, name)) == 0:
            raise BadCommandError(
                f"set: expected shares of {', '.join(own.name for own in record.variants[1:])}, found one of "
                f"{record.variants[0].name}, which gets the rest"
            )
        shares[variant] = share
    if (together := sum(shares[1:])) > SLOTS or min(shares[1:]) < 0:
        listed = ", ".join(
            f"{own.name} {percent(share)}" for own, share in zip(record.variants[1:], shares[1:], strict=True)
        )
        raise BadCommandError(f"set: expected shares from 0 % to 100 % together, found {listed} ({percent(together)})")
    return (SLOTS - together, *shares[1:])


def _overridden(current: RolloutRecord, record: RolloutRecord, command: Command, change: Change) -> RolloutRecord:
    """The record with overrides added, replaced and removed."""
    if record.state in ENDED:
        raise BadCommandError(f"set: the rollout is {record.state}, so there is nothing to override: start one")
    if not change.reason.strip():
        raise BadCommandError("set: expected a reason, found none: it is kept in the rollout's history")
    keys = dict(record.keys)
    for key, name in command.keys.items():
        keys.pop(key, None)
        if name:
            keys[key] = variant_of(record, name)
    fields = record.fields
    for (path, value), name in command.fields.items():
        fields = _with_field(fields, path, value, variant_of(record, name) if name else None)
    if record is current:
        record = next_record(current, change, expected=current.revision)
    return replace(record, keys=tuple(keys.items()), fields=fields)


def _with_field(
    fields: tuple[FieldOverride, ...], path: str, value: str, variant: int | None
) -> tuple[FieldOverride, ...]:
    """The overrides with this value of this field for the variant only; None: for no variant."""
    kept = [replace(own, values=own.values - {value}) if own.field == path else own for own in fields]
    kept = [own for own in kept if own.values]
    if variant is None:
        return tuple(kept)
    for place, own in enumerate(kept):
        if (own.field, own.variant) == (path, variant):
            kept[place] = replace(own, values=own.values | {value})
            return tuple(kept)
    return (*kept, FieldOverride(path, frozenset({value}), variant))
