"""Follows `latest` or an alias: loads the version beside the served one, and switches over to it.

Loading and unloading run in a thread of their own (`watch_thread`), never on the path of events.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from millstream.consumers.observability import metrics as m
from millstream.consumers.serving.errors import NotServed
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.loader import Loader, give_memory_back
from millstream.consumers.serving.place import Place
from millstream.consumers.serving.reload_error import ReloadError
from millstream.consumers.serving.shared_series import Series
from millstream.consumers.serving.wanted_now import Target

log = logging.getLogger(__name__)

LOG_INTERVAL = 600.0  # seconds between two lines about the same failure
MOST_WAITS = 16  # a failure that may pass is tried again after so many poll intervals, at most


class StartLoader(Loader, Protocol):
    """A loader that knows the version at the start."""

    def started_with(self, target: Target, first: Loaded) -> bool:
        """Whether the version at the start, which has this number, also has this content."""
        ...


class Pause:
    """How many looks a version is left alone after failures that may pass: 1, 2, 4, and so on, up to 16. Pure."""

    def __init__(self) -> None:
        self._target: Target | None = None
        self._length = 0
        self._left = 0

    def begin(self, target: Target) -> None:
        """Note a failure of this version."""
        self._length = min(2 * self._length, MOST_WAITS) if target == self._target and self._length else 1
        self._target, self._left = target, self._length

    def lasts(self, target: Target) -> bool:
        """Whether this version is left alone at this look."""
        if target != self._target or not self._left:
            return False
        self._left -= 1
        return True


class ModelWatch:
    """Follows the wanted version. One thread calls it; `close` is called after it has ended."""

    def __init__(
        self,
        first: Loaded,
        place: Place,
        find: Callable[[], Target],
        loader: StartLoader,
        *,
        stop: threading.Event,
        metrics: Series,
        counts_predictions: bool = True,
    ) -> None:
        """Args:
        first: the version that is served at the start.
        place: where the versions are served.
        find: returns the wanted version. It raises NotServed.
        loader: loads and unloads versions.
        stop: set when the worker ends.
        metrics: get the served version and failures.
        counts_predictions: whether predictions name the version as their model.
        """
        self.served = first
        self._place = place
        self._find = find
        self._loader = loader
        self._stop = stop
        self._counts_predictions = counts_predictions
        self._metrics = metrics
        self._old: list[Loaded] = []  # versions before the served one that still have batches in flight
        self._failed: tuple[Target, NotServed] | None = None  # the version that isn't tried again, and why
        self._error = ReloadError(first.model.name, metrics)
        self._said: tuple[str, float] = "", 0.0  # the last failure in the log, and when
        self._pause = Pause()
        self._show()

    def begin(self) -> None:
        """Note which content the version at the start has: in a folder, nothing else says so. Call it at once."""
        with suppress(Exception):  # the first look reports it
            self._note_start(self._find())

    def look(self) -> None:
        """Look at the repository once, and follow it."""
        self.unload_free()
        if self._old:  # a third version would need memory, too
            version, name = _named(self._old[0])
            self._say(
                f"Version {version} of model {name} still has batches in flight. Until they have results, no other version is "
                f"loaded."
            )
            return
        try:
            self._follow()
        except NotServed as refused:
            self._note_failure(refused)
        except Exception as error:
            log.exception("the model repository was not followed")
            self._note_failure(NotServed("load", f"{type(error).__name__}: {error}", transient=True))

    def unload_free(self) -> bool:
        """Unload the versions before the served one that have no batch in flight any more. Returns whether others are left."""
        for old in list(self._old):
            if not self._place.is_in_use(old):
                self._old.remove(old)
                self._loader.unload(old)
                give_memory_back()
                log.info("version %d of model %s is unloaded", old.model.version, old.model.name)
        return bool(self._old)

    def close(self) -> None:
        """Unload all versions."""
        for loaded in (*self._old, self.served):
            self._loader.unload(loaded)
        self._old = []

    def _follow(self) -> None:
        target = self._find()
        self._note_start(target)
        served = self.served
        if target == served.target:
            if self._error.is_shown:
                log.info("version %d of model %s, which answers, is the wanted one again", *_named(served))
            self._note_success()
            return
        if self._failed is not None and target == self._failed[0]:
            self._error.show(self._failed[1])
            return
        if self._pause.lasts(target):
            return
        if target.version == served.model.version:
            log.warning("version %d of model %s was changed where it lies: it is loaded again", *_named(served))
        started = time.perf_counter()
        new = self._loaded(target, served)
        if new is None:
            give_memory_back()
            return
        if self._stop.is_set() or not self._is_still(target):
            self._loader.unload(new)
            return
        self._switch(new, time.perf_counter() - started)

    def _loaded(self, target: Target, served: Loaded) -> Loaded | None:
        """Load a version; None: it isn't put to work, which is noted."""
        try:
            return self._loader.load(target, served)
        except NotServed as refused:
            if refused.transient:
                self._pause.begin(target)
            else:  # without the traceback, which refers to all that was loaded
                self._failed = target, NotServed(refused.reason, str(refused))
            self._note_failure(refused)
            return None

    def _note_start(self, target: Target) -> None:
        """If this is the version that the worker started with, note its content."""
        first = self.served
        if first.target is None and target.version == first.model.version and self._loader.started_with(target, first):
            self.served = Loaded(target, first.model, first.opened, first.folder)

    def _is_still(self, target: Target) -> bool:
        """Whether the version's content is the one from before it was loaded: it may be copied just now."""
        try:
            return self._find() == target
        except NotServed:
            return False

    def _switch(self, new: Loaded, took: float) -> None:
        old, self.served = self.served, new
        if self._counts_predictions:
            self._metrics.count(m.PREDICTIONS, 0, new.model.name, str(new.model.version), "primary")
        self._place.switch_to(new)
        self._metrics.forget(m.SERVING_MODEL, old.model.name, str(old.model.version))
        self._show()
        self._metrics.count(m.MODEL_RELOADS, 1, "switched")
        self._note_success()
        log.info(
            "version %d of model %s answers from now on, in place of version %d. It was loaded and warmed up in %.1f s",
            new.model.version,
            new.model.name,
            old.model.version,
            took,
        )
        self._old.append(old)
        self.unload_free()

    def _show(self) -> None:
        self._metrics.set(m.SERVING_MODEL, 1, self.served.model.name, str(self.served.model.version))

    def _note_success(self) -> None:
        self._failed = None
        self._pause = Pause()
        self._error.forget()

    def _note_failure(self, refused: NotServed) -> None:
        error = str(refused)
        self._metrics.count(m.MODEL_RELOADS, 1, refused.reason)
        self._error.show(refused)
        again = "" if refused.transient else "; the other one is tried again when its files change"
        model = self.served.model
        self._say(f"{error} Version {model.version} of model {model.name} goes on answering{again}.")

    def _say(self, text: str) -> None:
        """Log a warning, unless it was the last one, not long ago."""
        now = time.monotonic()
        if self._said[0] != text or now - self._said[1] >= LOG_INTERVAL:
            self._said = text, now
            log.warning("%s", text)


def _named(loaded: Loaded) -> tuple[int, str]:
    return loaded.model.version, loaded.model.name
