"""The models of tenants: loaded on first use, replaced by next versions, and unloaded within a memory budget."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import NamedTuple

from millstream.inference.combined.member import Member
from millstream.inference.errors import InferenceError, ModelConfigError

log = logging.getLogger(__name__)

RETRY_AFTER = 30.0  # seconds after which a model that can't be loaded is tried again
MAX_BROKEN = 10_000  # tenants whose error is remembered
STAGED_SHARE = 1 / 8  # of the budget: how much is loaded beside the models that it replaces, before they are closed


@dataclass(slots=True)
class Loaded:
    """A model that is loaded."""

    member: Member
    bytes: int
    users: int = 0  # batches that use it now
    evicted: bool = False
    refused: int | None = None  # the wanted version, if it can't be loaded
    number: int | None = None  # for `ANSWERED_BY`; None: it has answered nothing yet
    problem: str = ""  # why the wanted version isn't known, as the log has it


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
        wanted: Callable[[str], int | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        load: loads the wanted version of a tenant's model. Returns it and its bytes; None: the tenant has none. Raises
            InferenceError.
        budget: bytes that the loaded models may take. One model may take more, if it is alone.
        wanted: the number of the wanted version of a tenant's model; None: it has none. Raises InferenceError.
        clock: seconds.
        """
        self._load = load
        self._wanted = wanted
        self._budget = budget
        self._clock = clock
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()  # the least recently used first
        self._broken: OrderedDict[str, tuple[float, str]] = OrderedDict()  # tenant -> when its model failed, and why
        self._staged: dict[str, tuple[Loaded, Loaded]] = {}  # tenant -> what is loaded now, and its next version
        self._before: dict[str, Loaded] = {}  # versions for batches of the generation before
        self._generation = 0
        self._bytes = self._loads = self._evictions = self._failures = 0

    def is_loaded(self, tenant: str) -> bool:
        """Whether the tenant's model is loaded."""
        return tenant in self._loaded

    def are_loaded(self, tenants: Set[str]) -> bool:
        """Whether the models of all these tenants are loaded."""
        return tenants <= self._loaded.keys()

    def acquire(self, tenant: str, generation: int | None = None) -> Loaded | None:
        """The tenant's model, which stays open until `release`; None: it has none.

        Args:
            tenant: whose.
            generation: of the batch, see `change_over`; None: the newest.

        Raises:
            ModelConfigError: its model can't be loaded. It is not tried again for some time.
            ExecutorUnavailable: it can't be loaded now.
        """
        with self._lock:
            if generation is not None and generation < self._generation and tenant in self._before:
                entry = self._before[tenant]
                entry.users += 1
                return entry
            found = self._loaded.get(tenant) or self._open(tenant)
            if found is not None:
                self._loaded.move_to_end(tenant)
                found.users += 1
            return found

    def release(self, entry: Loaded) -> None:
        """End the use of a model."""
        with self._lock:
            entry.users -= 1
            done = entry.evicted and not entry.users
        if done:
            entry.member.executor.close()

    def reject(self, tenant: str, entry: Loaded, why: str) -> None:
        """Treat the tenant's model as one that can't be loaded, unless it was replaced meanwhile."""
        with self._lock:
            if self._loaded.get(tenant) is entry:
                self._evict(tenant, entry)
                self._note_broken(tenant, why)

    def stage(self, *, stop: Callable[[], bool] = lambda: False) -> bool:
        """Load wanted versions beside those that are loaded, as much as `STAGED_SHARE` allows, or one. Call `change_over` then.

        Args:
            stop: whether to end early.

        Returns:
            whether there is something to change over to.
        """
        left = self._budget * STAGED_SHARE
        with self._lock:
            loaded = list(self._loaded.items())
        for tenant, entry in loaded:
            if stop() or left <= 0:
                break
            new = self._next(tenant, entry)
            if new is not None:
                self._staged[tenant] = entry, new
                left -= new.bytes
        return bool(self._staged)

    def change_over(self, generation: int) -> None:
        """Let the versions of `stage` answer batches of this generation. Those before get what they would have got.

        Call `forget_before` when there are no more batches of the generation before.
        """
        unused: list[Loaded] = []
        with self._lock:
            self._generation = generation
            for tenant, (old, new) in self._staged.items():
                if self._loaded.get(tenant) is not old:  # it was unloaded meanwhile
                    unused.append(new)
                    continue
                self._before[tenant] = old
                self._loaded[tenant] = new  # used as recently as the one before
                self._bytes += new.bytes
                self._loads += 1
            self._staged = {}
        for new in unused:
            new.member.executor.close()

    def forget_before(self) -> None:
        """Close the versions of the generation before."""
        with self._lock:
            for entry in self._before.values():
                self._retire(entry)
            self._before = {}
            self._keep_budget()

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
        self.forget_before()
        with self._lock:
            for _, new in self._staged.values():
                new.member.executor.close()
            self._staged = {}
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

    def _add(self, tenant: str, member: Member, size: int) -> Loaded:
        entry = self._loaded[tenant] = Loaded(member, size)
        self._bytes += size
        self._loads += 1
        self._keep_budget()
        return entry

    def _next(self, tenant: str, entry: Loaded) -> Loaded | None:
        """The wanted version, if it is another one and can be loaded."""
        name, version, wanted = entry.member.model.name, entry.member.model.version, None
        try:
            wanted = self._wanted(tenant)
            if wanted in {None, version, entry.refused}:
                entry.problem = ""
                return None
            found = self._load(tenant)
        except InferenceError as error:
            if wanted is not None and error.failure != "wait":
                entry.refused = wanted
                self._failures += 1
            if str(error) != entry.problem:
                entry.problem = str(error)
                told = "the wanted version" if wanted is None else f"version {wanted}"
                log.error("model %s: %s can't be used, version %d goes on: %s", name, told, version, error)
            return None
        if found is None:
            return None
        log.info("version %s of model %s is loaded, in place of version %d", found[0].model.version, name, version)
        return Loaded(*found)

    def _keep_budget(self) -> None:
        """Unload the models that were used least recently, but not the last one."""
        for oldest, other in list(self._loaded.items())[:-1]:
            if self._bytes <= self._budget:
                break
            self._evict(oldest, other)
            self._evictions += 1

    def _evict(self, tenant: str, entry: Loaded) -> None:
        del self._loaded[tenant]
        self._retire(entry)

    def _retire(self, entry: Loaded) -> None:
        """Close a model, now or when its last user is done."""
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
