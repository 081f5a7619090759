"""The versions of a rollout that a worker holds, and those that it can't load."""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from millstream.consumers.observability import metrics as m
from millstream.consumers.serving.errors import NotServed
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.loader import Loader, give_memory_back
from millstream.consumers.serving.reload_error import ReloadError
from millstream.consumers.serving.shared_series import SharedSeries
from millstream.consumers.serving.wanted_now import Target

log = logging.getLogger(__name__)

RETRY = (1.0, 60.0)  # seconds: the first wait after a version couldn't be loaded, and the longest


@dataclass(slots=True)
class Failed:
    """A version that can't be loaded."""

    target: Target | None  # None: not found
    refused: NotServed
    again: float  # when it is tried again, seconds on the monotonic clock
    wait: float
    shown: ReloadError


class HeldVersions:
    """Loads and unloads versions. One thread at a time calls it, except for `get`, `failure` and `retry_soon`."""

    def __init__(
        self,
        first: Loaded,
        find: Callable[[int], Target],
        loader: Loader,
        metrics: m.Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        first: the version that the worker started with.
        find: returns a version with its content. It raises NotServed.
        loader: loads and unloads versions.
        metrics: get failures.
        clock: seconds.
        """
        self._first = first
        self._find = find
        self._loader = loader
        self._metrics = SharedSeries(metrics)  # two versions may fail for the same reason
        self._clock = clock
        self._loaded: dict[int, Loaded] = {first.model.version: first}
        self._failed: dict[int, Failed] = {}

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

    def missing(self, wanted: Collection[int]) -> Iterator[int]:
        """The versions to load now: those that aren't loaded, and didn't fail a short while ago."""
        now = self._clock()
        for version in wanted:
            failed = self._failed.get(version)
            if version not in self._loaded and (failed is None or now >= failed.again):
                yield version

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
            # All have the same inputs and outputs. The first one may be unloaded by now.
            beside = next(iter(self._loaded.values()), self._first)
            self._loaded[version] = self._loader.load(target, beside)
        except NotServed as refused:
            return self._note(version, target, refused)
        except Exception as error:
            log.exception("version %d was not loaded", version)
            return self._note(version, target, NotServed("load", f"{type(error).__name__}: {error}", transient=True))
        self._forget(version)
        self._metrics.count(m.MODEL_RELOADS, 1, "loaded")
        log.info("version %d of model %s is loaded, in %.1f s", version, self._name, self._clock() - started)
        return True

    def take_unneeded(self, wanted: Collection[int], in_use: Collection[int]) -> list[Loaded]:
        """Take out the versions that are neither wanted nor in use, for `unload`. From now on, `get` doesn't return them."""
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
        before = self._failed.get(version)
        first, longest = RETRY
        wait = first if before is None else min(2 * before.wait, longest)
        shown = ReloadError(self._name, self._metrics) if before is None else before.shown
        # Without the traceback, which refers to all that was loaded.
        refused = NotServed(refused.reason, str(refused), transient=refused.transient)
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
