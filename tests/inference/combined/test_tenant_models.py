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
from millstream.inference.combined.tenant_models import RETRY_AFTER, TenantModels
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
def using(models: TenantModels, tenant: str, generation: int | None = None) -> Iterator[Member | None]:
    entry = models.acquire(tenant, generation)
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


class Versions:
    """The models of all tenants have the wanted version. Version 2 is broken."""

    def __init__(self, budget: int = 100) -> None:
        self.wanted = 1
        self.opened: list[Scaling] = []
        self.models = TenantModels(self.load, budget, wanted=lambda _: self.wanted)

    def load(self, tenant: str) -> tuple[Member, int]:
        if self.wanted == 2:
            raise ModelConfigError("version 2 is broken")
        self.opened.append(Scaling(self.wanted))
        return member(tenant, self.opened[-1], number=self.wanted), 1

    def version(self, tenant: str = "t0", generation: int | None = None) -> int:
        with using(self.models, tenant, generation) as found:
            assert found is not None
            return found.model.version

    def closed(self) -> list[bool]:
        return [executor.closed for executor in self.opened]


def test_wanted_version_is_loaded_beside_and_answers_from_the_next_generation_on() -> None:
    scene = Versions()
    assert scene.version() == 1
    assert not scene.models.stage()
    scene.wanted = 3
    assert scene.models.stage()
    assert scene.version() == 1
    scene.models.change_over(1)
    assert [scene.version(generation=each) for each in (1, 0, 1)] == [3, 1, 3], "batches submitted before keep theirs"
    assert (scene.closed(), scene.models.counts().bytes) == ([False, False], 2)
    scene.models.forget_before()
    assert (scene.closed(), scene.models.counts()) == ([True, False], (1, 1, 2, 0, 0))
    scene.wanted = 1  # backwards, as an alias may
    assert scene.models.stage()
    scene.models.change_over(2)
    scene.models.forget_before()
    assert scene.version() == 1


def test_version_that_is_broken_leaves_the_old_one_and_is_not_tried_again() -> None:
    scene = Versions()
    assert scene.version() == 1
    scene.wanted = 2
    assert [scene.models.stage() for _ in range(3)] == [False] * 3
    assert (scene.version(), scene.models.counts().failed) == (1, 1)
    scene.wanted = 3
    assert scene.models.stage()
    scene.models.change_over(1)
    assert scene.version() == 3


def test_old_version_in_use_is_closed_by_its_last_user() -> None:
    scene = Versions()
    with using(scene.models, "t0"):
        scene.wanted = 3
        scene.models.stage()
        scene.models.change_over(1)
        scene.models.forget_before()
        assert scene.closed() == [False, False]
    assert scene.closed() == [True, False]


def test_model_that_was_unloaded_while_its_next_version_was_loaded_stays_so() -> None:
    scene = Versions(budget=1)
    assert scene.version("t0") == 1
    scene.wanted = 3
    assert scene.models.stage()
    assert scene.version("t1") == 3
    scene.models.change_over(1)
    scene.models.forget_before()
    assert not scene.models.is_loaded("t0")
    assert (scene.closed(), scene.models.counts().bytes) == ([True, True, False], 1)


def test_only_a_part_of_the_budget_is_loaded_beside() -> None:
    scene = Versions(budget=32)
    for at in range(30):
        assert scene.version(f"t{at}") == 1
    scene.wanted = 3
    changed = []
    for generation in range(1, 20):
        if not scene.models.stage():
            break
        scene.models.change_over(generation)
        changed.append(scene.models.counts().bytes - 30)
        scene.models.forget_before()
    assert changed == [4] * 7 + [2]
    assert {scene.version(f"t{at}") for at in range(30)} == {3}
    scene.models.close()
    assert all(scene.closed())


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
