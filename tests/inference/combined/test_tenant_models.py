"""Models that are loaded on first use and unloaded within a budget, also while several threads use them."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.member import Member
from millstream.inference.combined.tenant_models import CHECK_AFTER, RETRY_AFTER, TenantModels
from millstream.inference.errors import ModelConfigError
from tests.inference.combined.scaling import Scaling, member

SIZES = {f"t{at}": 1 + at % 3 for at in range(8)}


class Loader:
    def __init__(self) -> None:
        self.opened: list[tuple[str, Scaling]] = []
        self.broken: set[str] = set()

    def __call__(self, tenant: str) -> tuple[Member, int] | None:
        if tenant in self.broken:
            raise ModelConfigError(f"{tenant} is broken")
        if tenant not in SIZES:
            return None
        self.opened.append((tenant, Scaling(1)))
        return member(tenant, self.opened[-1][1]), SIZES[tenant]

    @property
    def loaded(self) -> list[str]:
        return [tenant for tenant, executor in self.opened if not executor.closed]


@contextmanager
def using(models: TenantModels, tenant: str) -> Iterator[Member | None]:
    entry = models.acquire(tenant)
    try:
        yield None if entry is None else entry.member
    finally:
        if entry is not None:
            models.release(entry)


@given(st.lists(st.sampled_from(sorted(SIZES)), max_size=60), st.integers(1, 12))
def test_least_recently_used_models_are_unloaded(asked: list[str], budget: int) -> None:
    load = Loader()
    models = TenantModels(load, budget)
    expected: OrderedDict[str, int] = OrderedDict()
    for tenant in asked:
        with using(models, tenant) as found:
            assert found is not None
            assert found.model.name == tenant
        expected[tenant] = SIZES[tenant]
        expected.move_to_end(tenant)
        while sum(expected.values()) > budget and len(expected) > 1:
            expected.popitem(last=False)
        assert sorted(load.loaded) == sorted(expected)
        assert all(map(models.is_loaded, expected))
        assert (models.counts().models, models.counts().bytes) == (len(expected), sum(expected.values()))
    assert models.counts().loaded - models.counts().evicted == len(expected)
    models.close()
    assert load.loaded == []


def test_model_in_use_is_closed_by_its_last_user() -> None:
    load = Loader()
    models = TenantModels(load, 1)
    with using(models, "t0") as first, using(models, "t0") as again:
        assert first is again
        with using(models, "t3"):
            assert not models.is_loaded("t0")
            assert load.loaded == ["t0", "t3"]
    assert load.loaded == ["t3"]


def test_broken_model_is_tried_again_after_a_while() -> None:
    load, now = Loader(), [0.0]
    models = TenantModels(load, 5, clock=lambda: now[0])
    load.broken = {"t0"}
    for now[0] in (0.0, RETRY_AFTER - 1):
        with pytest.raises(ModelConfigError, match="t0 is broken"), using(models, "t0"):
            pass
    assert models.counts().failed == 1
    load.broken = set()
    with pytest.raises(ModelConfigError), using(models, "t0"):
        pass
    now[0] = RETRY_AFTER
    with using(models, "t0") as found:
        assert found is not None


def test_newer_version_is_loaded_after_a_while_and_a_broken_one_is_not_tried_again() -> None:
    now, newest, opened = [0.0], [1], list[Scaling]()

    def load(tenant: str) -> tuple[Member, int]:
        if newest[0] == 2:
            raise ModelConfigError("version 2 is broken")
        opened.append(Scaling(newest[0]))
        return member(tenant, opened[-1], number=newest[0]), newest[0]

    models = TenantModels(load, 100, newest=lambda _: newest[0], clock=lambda: now[0])

    def version() -> int:
        with using(models, "t0") as found:
            assert found is not None
            return found.model.version

    assert version() == 1
    newest[0] = 3
    assert version() == 1
    now[0] += CHECK_AFTER
    assert version() == 3
    assert [executor.closed for executor in opened] == [True, False]
    assert models.counts() == (1, 3, 2, 0, 0)
    newest[0] = 2  # by hand: version 3 was taken away
    for _ in range(3):
        now[0] += CHECK_AFTER
        assert version() == 3
    assert models.counts().failed == 1
    assert [executor.closed for executor in opened] == [True, False]


def test_threads_never_use_a_closed_model() -> None:
    load = Loader()
    models = TenantModels(load, 4)
    errors: list[BaseException] = []

    def use(seed: int) -> None:
        random = Random(seed)
        try:
            for _ in range(400):
                with using(models, random.choice(sorted(SIZES))) as found:
                    assert found is not None
                    assert not found.executor.closed  # type: ignore[attr-defined]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert models.counts().bytes <= 4
    models.close()
    assert load.loaded == []
