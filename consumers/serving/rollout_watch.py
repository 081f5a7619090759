"""Follows the rollout: routes by its newest revision, and has the versions loaded that this revision needs.

Two threads work on it. One reads the control topic, and switches the pool over as soon as it has read a revision. The other one
unloads versions, and starts a thread for each version that is to be loaded, which may take long, or never end.
"""

import logging
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from millstream.consumers.execute.interface import Pool
from millstream.consumers.execute.opened_rollout import Opened, OpenedRollout, OpenedVariant
from millstream.consumers.execute.variant_outage import VariantOutage
from millstream.consumers.observability import metrics as m
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.routing import route
from millstream.consumers.serving.held_versions import HeldVersions
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.loader import lower_priority
from millstream.consumers.serving.rollout_needs import NO_ROLLOUT, fallback, needed
from millstream.consumers.serving.rollout_router import RolloutRouter
from millstream.inference.executors.interface import Tensors
from millstream.inference.model_id import ModelId
from millstream.schemas.dead_letters import LetterModel
from millstream.schemas.rollout_choices import RolloutChoice

log = logging.getLogger(__name__)

READ_INTERVAL = 0.25  # seconds that a read of the control topic waits for a record
LOOK_INTERVAL = 0.25  # seconds between two looks at what is to be loaded or unloaded, at most


class Records(Protocol):
    """The control topic, see `ControlReader`."""

    @property
    def record(self) -> RolloutRecord | None:
        """The newest record that counts; None: there is no rollout."""
        ...

    @property
    def problem(self) -> str:
        """Why the newest state may be unknown here; empty if the topic can be read."""
        ...

    def poll(self, timeout: float) -> object:
        """Read what came since; wait up to `timeout` seconds for the first record."""
        ...

    def close(self) -> None:
        """Close the connection."""


class RolloutWatch:
    """See the module. `start` is called before the threads run, and `close` after they have ended."""

    def __init__(
        self,
        pool: Pool,
        records: Records,
        versions: HeldVersions,
        *,
        own: int,
        override_fields: Sequence[str],
        sample: Tensors | None,
        stop: threading.Event,
        metrics: m.Metrics,
    ) -> None:
        """Args:
        pool: runs the versions. It has the first one of `versions`.
        records: the control topic, read to its end.
        versions: that are loaded.
        own: the version that answers while there is no rollout.
        override_fields: the fields that the worker decodes for overrides.
        sample: what the first version answers to a blank event; None: it rejects that.
        stop: set when the worker ends.
        metrics: get the state.
        """
        self._pool = pool
        self._records = records
        self._versions = versions
        self._own = own
        self._override_fields = override_fields
        self._sample = sample
        self._stop = stop
        self._metrics = metrics
        self._lock = threading.Lock()  # of all below
        self._record: RolloutRecord | None = None
        self._serving: Opened = versions.first.opened
        self._old: list[Opened] = []  # before the one served, that still have batches in flight
        self._outages: dict[tuple[str, int], VariantOutage] = {}
        self._shown: set[tuple[str, str, str]] = set()  # labels of the variants in the metrics
        self._state: tuple[str, str] | None = None  # labels of the rollout's state in the metrics
        self._answering = set[tuple[str, str]]()  # the versions that the metrics show as serving
        self._told: RolloutRecord | None = None  # the revision that the log has
        self._wake = threading.Event()
        self._settled = threading.Event()  # set once nothing of the newest revision is left to load

    def start(self) -> None:
        """Route by the newest revision, with the version that is loaded. `run` loads the others."""
        self._record = self._records.record
        self._show_serving(None)
        self._apply()
        self._show_problem()
        self._wake.set()

    def wait_until_loaded(self, seconds: float, stopping: threading.Event) -> None:
        """Wait until the versions of the newest revision are loaded, or known to fail, while the threads run.

        A version that hangs while it is loaded must not stop the baseline. So the wait ends after some time.

        Args:
            seconds: the longest wait.
            stopping: set when the worker is to end.
        """
        until = time.monotonic() + seconds
        while not self._settled.wait(LOOK_INTERVAL) and not stopping.is_set():
            if time.monotonic() >= until:
                loading = ", ".join(map(str, self._loading()))
                log.warning("not loaded after %g s: version %s. Until it is, other versions answer", seconds, loading)
                return

    def follow(self) -> None:
        """Read the control topic until `stop` is set."""
        while not self._stop.is_set():
            try:
                self._records.poll(READ_INTERVAL)
                self.look_at_record()
            except Exception:  # a bug must not end the worker: it goes on with the state that it has
                log.exception("the rollout was not followed")
                self._stop.wait(LOOK_INTERVAL)

    def look_at_record(self) -> None:
        """Route by the newest revision, if it is another one."""
        self._show_problem()
        record = self._records.record
        if record is self._record:
            return
        with self._lock:
            self._record = record
            self._versions.retry_soon()
        self._apply()
        self._wake.set()

    def run(self, *, nice: bool = False) -> None:
        """Load and unload versions until `stop` is set. `nice`: whether that may have a lower priority."""
        if nice:
            lower_priority()  # also of the threads that it starts
        while not self._stop.is_set():
            self._wake.wait(LOOK_INTERVAL)
            self._wake.clear()
            if self._stop.is_set():
                break
            try:
                self.look_at_versions()
            except Exception:  # as in `follow`
                log.exception("the versions of the rollout were not looked at")
        self._versions.wait()  # what is still being loaded can't be closed

    def look_at_versions(self) -> None:
        """Begin to load what is missing, and unload what nobody needs."""
        self._unload_free()
        # After each load, another version may have its turn, or the one that was loaded is not wanted any more.
        self._versions.begin(self._wanted(), self._load, self._wake.set)

    def version_of(self, key: bytes) -> LetterModel | None:
        """The version to which the newest revision routes a key. None: there is no rollout.

        It is for an event that took workers down, and so is not decoded: it does not count if a field could have decided.
        """
        with self._lock:
            record, serving = self._record, self._serving
        if record is None or not isinstance(serving, OpenedRollout):
            return None
        plan = replace(record.plan(), fields=())
        routed = route(plan, [key])
        at = int(routed.variant[0])
        randomised = bool(routed.randomised[0]) and not record.fields
        choice = RolloutChoice(
            record.rollout, record.revision, record.variants[at].name, float(plan.shares[at]), randomised, 0.0
        )
        # Both: in a topic that was created anew, revisions begin at 1 again.
        serves = (serving.id, serving.revision) == (record.rollout, record.revision)
        loaded = serves and serving.variants[at].opened is not None
        answers = serving.variants[at if loaded else serving.fallback]
        return LetterModel(answers.id.name, answers.id.version, answers.name, choice)

    def close(self) -> None:
        """Unload all versions, and leave the control topic."""
        self._versions.close()
        self._records.close()

    def _wanted(self) -> list[int]:
        """The versions that the newest revision needs. The baseline first: what isn't loaded yet leaves its events to it."""
        record = self._record
        if record is None:
            return [self._own]
        own, order = self._versions.first.model.name, sorted(needed(record), key=lambda at: at != record.baseline)
        return [record.variants[at].version for at in order if record.variants[at].model == own]

    def _loading(self) -> list[int]:
        """The versions that the newest revision needs, and that were not tried yet."""
        versions = self._versions
        return [own for own in self._wanted() if versions.get(own) is None and versions.failure(own) is None]

    def _load(self, version: int) -> None:
        try:
            if self._versions.load(version):
                if (refused := self._versions.failure(version)) is not None:
                    log.warning("%s %s", refused, self._instead_of(version))
                self._apply()
        except Exception:  # as in `follow`
            log.exception("the rollout was not followed")

    def _instead_of(self, version: int) -> str:
        """Who answers the events of a version that can't be loaded, as a sentence."""
        record = self._record
        chosen = None if record is None else fallback(record, self._loaded(record).keys())
        if record is None or chosen is None:
            answering = ", ".join(sorted(own for _, own in self._answering))
            return f"Until version {version} is loaded, version {answering} goes on answering all events."
        if chosen == record.baseline:
            return f"The baseline answers the events of version {version}."
        return f"Version {record.variants[chosen].version} answers the events of version {version}."

    def _apply(self) -> None:
        """Route by the newest revision, with the versions that are loaded now."""
        with self._lock:
            record = self._record
            loading = self._loading()  # first: what is loaded meanwhile is used, too
            opened = self._opened_alone() if record is None else self._opened(record, loading)
            if opened is not None and opened is not self._serving:
                self._begin_series(record)
                before, self._serving = self._serving, opened
                self._pool.switch_to(opened)
                self._old.append(before)
                self._show(record)
            elif record is not None:  # it waits for the version that is to answer
                self._show_loaded(record)
            if not loading:
                self._settled.set()

    def _opened_alone(self) -> Opened | None:
        """The version that answers without a rollout; None: it isn't loaded yet."""
        found = self._versions.get(self._own)
        return None if found is None else found.opened

    def _opened(self, record: RolloutRecord, loading: Collection[int]) -> OpenedRollout | None:
        """The rollout with what is loaded of it; None: the version that is to answer isn't loaded yet."""
        name = self._versions.first.model.name
        loaded = self._loaded(record)
        chosen = fallback(record, loaded.keys())
        if chosen is None:
            log.warning(
                "%s waits: none of its versions is loaded yet. Until then, the state before goes on", _told(record)
            )
            return None
        absent = [at for at in needed(record) if at not in loaded and record.variants[at].version in loading]
        plan = record.plan()
        if foreign := sorted({variant.model for variant in record.variants} - {name}):
            log.warning(
                "%s: expected versions of model %s, found model %s: the baseline answers its events. Start the rollout anew",
                _told(record),
                name,
                ", ".join(foreign),
            )
        if unknown := sorted({each.field for each in plan.fields} - set(self._override_fields)):
            log.warning(
                "%s: overrides by %s have no effect: name the fields in `rollout.override_fields`, and restart the workers",
                _told(record),
                ", ".join(unknown),
            )
        router = RolloutRouter(plan, self._override_fields, absent=absent, fallback=chosen)
        variants = [
            OpenedVariant(
                variant.name,
                ModelId(variant.model, variant.version),
                loaded[at].opened if at in loaded else None,
                self._outage(variant.name, variant.version),
            )
            for at, variant in enumerate(record.variants)
        ]
        return OpenedRollout(
            record.rollout, record.revision, variants, plan.shares, chosen, router.assigned, self._sample
        )

    def _loaded(self, record: RolloutRecord) -> dict[int, Loaded]:
        """The variants that the revision needs, as far as they are loaded."""
        model, needs = self._versions.first.model.name, [(at, record.variants[at]) for at in needed(record)]
        found = {at: self._versions.get(own.version) for at, own in needs if own.model == model}
        return {at: version for at, version in found.items() if version is not None}

    def _outage(self, name: str, version: int) -> VariantOutage:
        """The same for all revisions, so that a version that fails isn't asked again after each change."""
        key = name, version
        if key not in self._outages:
            told = f"variant {name}, version {version} of model {self._versions.first.model.name},"
            self._outages[key] = VariantOutage(told)
        return self._outages[key]

    def _unload_free(self) -> None:
        with self._lock:
            self._old = [old for old in self._old if self._pool.is_in_use(old)]
            in_use = {version for each in (*self._old, self._serving) for version in _versions_of(each)}
            free = self._versions.take_unneeded(
                self._wanted(), in_use
            )  # under the lock: none of them is routed to after it
        for loaded in free:
            self._versions.unload(loaded)

    def _begin_series(self, record: RolloutRecord | None) -> None:
        for variant in () if record is None else record.variants:
            self._metrics.count(m.PREDICTIONS, 0, variant.model, str(variant.version), variant.name)

    def _show(self, record: RolloutRecord | None) -> None:
        """Put the revision into the metrics and the log."""
        for labels in self._shown:
            self._metrics.forget(m.ROLLOUT_SHARE, *labels)
            self._metrics.forget(m.ROLLOUT_LOADED, *labels)
        self._shown.clear()
        self._show_state(record)
        self._show_serving(record)
        if record is None:
            self._metrics.set(m.ROLLOUT_REVISION, NO_ROLLOUT)
            log.info("there is no rollout any more: version %d answers", self._own)
            return
        shares = record.plan().shares.tolist()
        for at in needed(record):
            self._metrics.set(m.ROLLOUT_SHARE, shares[at], *_labels(record.variants[at]))
        self._show_loaded(record)
        self._metrics.set(m.ROLLOUT_REVISION, record.revision)
        if record is self._told:
            return
        self._told = record
        told = ", ".join(
            f"{own.name} (version {own.version}) {share:.4g} %"
            for own, share in zip(record.variants, [100 * share for share in shares], strict=True)
        )
        log.info("%s, %s: %s", _told(record), record.state, told)

    def _show_loaded(self, record: RolloutRecord) -> None:
        """Show which versions the revision needs, and whether they are loaded."""
        for variant in (record.variants[at] for at in needed(record)):
            self._shown.add(_labels(variant))
            self._metrics.set(m.ROLLOUT_LOADED, self._versions.get(variant.version) is not None, *_labels(variant))

    def _show_state(self, record: RolloutRecord | None) -> None:
        if self._state is not None:
            self._metrics.forget(m.ROLLOUT_STATE, *self._state)
        self._state = None if record is None else (record.strategy, record.state)
        if self._state is not None:
            self._metrics.set(m.ROLLOUT_STATE, 1, *self._state)

    def _show_serving(self, record: RolloutRecord | None) -> None:
        """Show the versions that answer events now."""
        name = self._versions.first.model.name
        serving = {(name, str(self._own))}
        if isinstance(self._serving, OpenedRollout) and record is not None:
            opened = self._serving
            shared = [each for each, share in zip(opened.variants, opened.shares, strict=True) if share > 0]
            answering = [opened.variants[opened.fallback] if each.opened is None else each for each in shared]
            serving = {(each.id.name, str(each.id.version)) for each in answering}
        for gone in self._answering - serving:
            self._metrics.forget(m.SERVING_MODEL, *gone)
        for labels in serving:
            self._metrics.set(m.SERVING_MODEL, 1, *labels)
        self._answering = serving

    def _show_problem(self) -> None:
        self._metrics.set(m.ROLLOUT_UNREADABLE, bool(self._records.problem))


def _versions_of(opened: Opened) -> set[int]:
    """The versions that it has loaded."""
    if isinstance(opened, OpenedRollout):
        return {variant.id.version for variant in opened.variants if variant.opened is not None}
    return {opened.id.version}


def _labels(variant: RolloutVariant) -> tuple[str, str, str]:
    """Of a variant in the metrics."""
    return variant.name, variant.model, str(variant.version)


def _told(record: RolloutRecord) -> str:
    return f"revision {record.revision} of rollout {record.rollout}"
