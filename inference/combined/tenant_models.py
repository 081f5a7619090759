"""The models of tenants: loaded on first use, renewed, and the least recently used ones unloaded within a memory budget."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from millstream.inference.combined.member import Member
from millstream.inference.errors import InferenceError, ModelConfigError

log = logging.getLogger(__name__)

RETRY_AFTER = 30.0  # seconds after which a model that can't be loaded is tried again
MAX_BROKEN = 10_000  # tenants whose error is remembered
CHECK_AFTER = 30.0  # seconds of use after which a worker looks for a newer version of a model


@dataclass(slots=True)
class Loaded:
    """A model that is loaded."""

    member: Member
    bytes: int
    checked: float = 0.0  # when it was known to be the newest version, in seconds on the clock
    users: int = 0  # batches that use it now
    evicted: bool = False
    refused: int | None = None  # a newer version that can't be loaded


class Counts(NamedTuple):
    """What is loaded now, and what happened since the start."""

    models: int = 0
    bytes: int = 0
    loaded: int = 0  # since the start, like the following
    evicted: int = 0
    failed: int = 0


class TenantModels:
    """Threads may share it. A model that is in use is closed when its last user is done."""

    def __init__(
        self,
        load: Callable[[str], tuple[Member, int] | None],
        budget: int,
        *,
        newest: Callable[[str], int | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        load: loads the newest version of a tenant's model. Returns it and its bytes; None: the tenant has none. Raises
            InferenceError.
        budget: bytes that the loaded models may take. One model may take more, if it is alone.
        newest: the number of the newest version of a tenant's model; None: it isn't known.
        clock: seconds.
        """
        self._load = load
        self._newest = newest
        self._budget = budget
        self._clock = clock
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()  # the least recently used first
        self._broken: OrderedDict[str, tuple[float, str]] = OrderedDict()  # tenant -> when its model failed, and why
        self._bytes = self._loads = self._evictions = self._failures = 0

    def is_loaded(self, tenant: str) -> bool:
        """Whether the tenant's model is loaded."""
        return tenant in self._loaded

    def acquire(self, tenant: str) -> Loaded | None:
        """The tenant's model, which stays open until `release`; None: it has none.

        Raises:
            ModelConfigError: its model can't be loaded. It is not tried again for some time.
            ExecutorUnavailable: it can't be loaded now.
        """
        with self._lock:
            entry = self._loaded.get(tenant)
            if entry is None:
                entry = self._open(tenant)
            elif self._clock() - entry.checked >= CHECK_AFTER:
                entry = self._renewed(tenant, entry)
            if entry is not None:
                self._loaded.move_to_end(tenant)
                entry.users += 1
            return entry

    def release(self, entry: Loaded) -> None:
        """End the use of a model."""
        with self._lock:
            entry.users -= 1
            done = entry.evicted and not entry.users
        if done:
            entry.member.executor.close()

    def reject(self, tenant: str, why: str) -> None:
        """Treat the tenant's model as one that can't be loaded."""
        with self._lock:
            if (entry := self._loaded.get(tenant)) is not None:
                self._evict(tenant, entry)
            self._note_broken(tenant, why)

    def counts(self) -> Counts:
        """See `Counts`."""
        with self._lock:
            return Counts(len(self._loaded), self._bytes, self._loads, self._evictions, self._failures)

    @property
    def changes(self) -> int:
        """A number that grows whenever `counts` changes."""
        return self._loads + self._evictions + self._failures

    def close(self) -> None:
        """Close all models that are not in use."""
        with self._lock:
            for tenant, entry in list(self._loaded.items()):
                self._evict(tenant, entry)

    def _open(self, tenant: str) -> Loaded | None:
        if tenant in self._broken:
            failed, why = self._broken[tenant]
            if self._clock() - failed < RETRY_AFTER:
                raise ModelConfigError(why)
            del self._broken[tenant]
        try:
            found = self._load(tenant)
        except InferenceError as error:
            if error.failure == "wait":
                raise
            self._note_broken(tenant, str(error))
            raise ModelConfigError(str(error)) from None
        return None if found is None else self._add(tenant, *found)

    def _renewed(self, tenant: str, entry: Loaded) -> Loaded:
        """The newest version, if it can be loaded; otherwise the one that is loaded already."""
        entry.checked = self._clock()
        newest = self._newest(tenant)
        if newest in {None, entry.member.model.version, entry.refused}:
            return entry
        try:
            found = self._load(tenant)
        except InferenceError as error:
            if error.failure == "wait":
                return entry
            entry.refused = newest
            self._failures += 1
            name = entry.member.model.name
            log.error(
                "model %s version %s can't be used, version %s goes on: %s",
                name,
                newest,
                entry.member.model.version,
                error,
            )
            return entry
        if found is None:
            return entry
        self._evict(tenant, entry)
        return self._add(tenant, *found)

    def _add(self, tenant: str, member: Member, size: int) -> Loaded:
        entry = self._loaded[tenant] = Loaded(member, size, self._clock())
        self._bytes += size
        self._loads += 1
        for oldest, other in list(self._loaded.items()):
            if self._bytes <= self._budget or other is entry:
                break
            self._evict(oldest, other)
            self._evictions += 1
        return entry

    def _evict(self, tenant: str, entry: Loaded) -> None:
        del self._loaded[tenant]
        self._bytes -= entry.bytes
        entry.evicted = True
        if not entry.users:
            entry.member.executor.close()

    def _note_broken(self, tenant: str, why: str) -> None:
        self._failures += 1
        self._broken[tenant] = self._clock(), why
        if len(self._broken) > MAX_BROKEN:
            self._broken.popitem(last=False)
        log.error("the model of tenant %r can't be used; its events become dead letters: %s", tenant, why)
