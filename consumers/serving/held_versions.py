"""The versions of a rollout that a worker holds, and those that it can't load."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from millstream.consumers.observability import metrics as m
from millstream.consumers.resilience.leaving import LibraryThread
from millstream.consumers.serving.errors import NotServed
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.loader import Loader, give_memory_back
from millstream.consumers.serving.reload_error import ReloadError
from millstream.consumers.serving.shared_series import SharedSeries
from millstream.consumers.serving.wanted_now import Target

log = logging.getLogger(__name__)

MOST_LOADS = 4
"""Loads at the same time, with those of versions that nobody wants any more: nothing can end a load from outside."""
RETRY = (1.0, 60.0)  # seconds: the first wait after a version couldn't be loaded, and the longest


@dataclass(slots=True)
class Failed:
    """A version that can't be loaded."""

    target: Target | None  # None: not found
    refused: NotServed
    again: float  # when it is tried again, seconds on the monotonic clock
    wait: float
    shown: ReloadError


def in_thread(load: Callable[[], None]) -> None:
    """Run it in a thread of its own."""
    LibraryThread(load, "version-load").start()


class HeldVersions:
    """Loads and unloads versions. Each `load` may run in a thread of its own: one that takes long, or hangs, delays no other."""

    def __init__(
        self,
        first: Loaded,
        find: Callable[[int], Target],
        loader: Loader,
        metrics: m.Metrics,
        clock: Callable[[], float] = time.monotonic,
        run: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        """Args:
        first: the version that the worker started with.
        find: returns a version with its content. It raises NotServed.
        loader: loads and unloads versions.
        metrics: get failures.
        clock: seconds.
        run: runs the load of a version.
        """
        self._first = first
        self._find = find
        self._loader = loader
        self._metrics = SharedSeries(metrics)  # two versions may fail for the same reason
        self._clock = clock
        self._run = run
        self._loaded: dict[int, Loaded] = {first.model.version: first}
        self._failed: dict[int, Failed] = {}
        self._loading = set[int]()
        # Of the three above and the metrics. `get`, `failure` and `retry_soon` only look, and take no lock.
        self._changing = threading.Condition()

    @property
    def first(self) -> Loaded:
        """The version that the worker started with. It may be unloaded by now."""
        return self._first

    def get(self, version: int) -> Loaded | None:
        """The version, if it is loaded."""
        return self._loaded.get(version)

    def failure(self, version: int) -> NotServed | None:
        """Why the version can't be loaded; None: it is loaded, or was not tried yet."""
        failed = self._failed.get(version)
        return None if failed is None else failed.refused

    def begin(self, wanted: Sequence[int], load: Callable[[int], object], ended: Callable[[], None]) -> None:
        """Run `load` for the versions to load now: those that aren't loaded, and didn't fail a short while ago.

        Each one runs in a thread of its own, at most `MOST_LOADS` at the same time.

        Args:
            wanted: versions, in the order in which they are to be loaded.
            load: loads one.
            ended: called after each load, when another one may begin.

        Raises:
            RuntimeError: the system starts no thread. The next call may begin the rest.
        """
        for version in wanted:
            with self._changing:
                begins = self._is_due(version) and len(self._loading) < MOST_LOADS
                if begins:
                    self._loading.add(version)
            if begins:
                self._begin_one(version, partial(self._run_one, version, load, ended))

    def wait(self) -> None:
        """Wait until no load is on its way."""
        with self._changing:
            self._changing.wait_for(lambda: not self._loading)

    def _begin_one(self, version: int, run: Callable[[], None]) -> None:
        try:
            self._run(run)
        except RuntimeError:
            self._end(version)
            raise

    def _run_one(self, version: int, load: Callable[[int], object], ended: Callable[[], None]) -> None:
        try:
            load(version)
        finally:
            self._end(version)
            ended()

    def _end(self, version: int) -> None:
        with self._changing:
            self._loading.discard(version)
            self._changing.notify_all()

    def _is_due(self, version: int) -> bool:
        failed = self._failed.get(version)
        is_known = version in self._loaded or version in self._loading
        return not is_known and (failed is None or self._clock() >= failed.again)

    def load(self, version: int) -> bool:
        """Load a version, or note why that fails. Returns whether it is loaded now, or failed for another reason than before."""
        before = self._failed.get(version)
        target = None
        try:
            target = self._find(version)
            if before is not None and before.target == target and not before.refused.transient:
                before.again = self._clock() + RETRY[1]  # its files are the same
                return False
            started = self._clock()
            # All have the same inputs and outputs, and only these count: it may be unloaded by now, or meanwhile.
            beside = next(iter(list(self._loaded.values())), self._first)
            loaded = self._loader.load(target, beside)
        except NotServed as refused:
            return self._note(version, target, refused)
        except Exception as error:
            log.exception("version %d was not loaded", version)
            return self._note(version, target, NotServed("load", f"{type(error).__name__}: {error}", transient=True))
        with self._changing:
            self._loaded[version] = loaded
            self._forget(version)
        self._metrics.count(m.MODEL_RELOADS, 1, "loaded")
        log.info("version %d of model %s is loaded, in %.1f s", version, self._name, self._clock() - started)
        return True

    def take_unneeded(self, wanted: Collection[int], in_use: Collection[int]) -> list[Loaded]:
        """Take out the versions that are neither wanted nor in use, for `unload`. From now on, `get` doesn't return them."""
        with self._changing:
            for version in set(self._failed) - set(wanted):
                self._forget(version)
            return [self._loaded.pop(version) for version in set(self._loaded) - {*wanted, *in_use}]

    def unload(self, loaded: Loaded) -> None:
        """Free what a version takes that was taken out."""
        self._loader.unload(loaded)
        give_memory_back()
        log.info("version %d of model %s is unloaded", loaded.model.version, self._name)

    def retry_soon(self) -> None:
        """Try versions that failed again at once, as far as that may help."""
        for failed in list(self._failed.values()):
            failed.again = 0.0

    def close(self) -> None:
        """Unload all."""
        for loaded in self._loaded.values():
            self._loader.unload(loaded)
        self._loaded = {}

    @property
    def _name(self) -> str:
        return self._first.model.name

    def _note(self, version: int, target: Target | None, refused: NotServed) -> bool:
        """Note a failure. Returns whether its reason is another one than before."""
        first, longest = RETRY
        # Without the traceback, which refers to all that was loaded.
        refused = NotServed(refused.reason, str(refused), transient=refused.transient)
        with self._changing:
            before = self._failed.get(version)
            wait = first if before is None else min(2 * before.wait, longest)
            shown = ReloadError(self._name, self._metrics) if before is None else before.shown
            # Before all else, and never taken out: the other thread would take the version for one that is still being loaded.
            self._failed[version] = Failed(target, refused, self._clock() + wait, wait, shown)
            shown.show(refused)
        if before is not None and str(before.refused) == str(refused):
            return False
        self._metrics.count(m.MODEL_RELOADS, 1, refused.reason)
        return True

    def _forget(self, version: int) -> None:
        failed = self._failed.pop(version, None)
        if failed is not None:
            failed.shown.forget()
