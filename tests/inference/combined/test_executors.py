"""Each executor of several models, compared with one event at a time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.cascade_executor import CascadeExecutor, Escalation
from millstream.inference.combined.combining import Source
from millstream.inference.combined.ensemble_executor import EnsembleExecutor, Fed, Step
from millstream.inference.combined.member import Member
from millstream.inference.combined.model_numbers import ModelNumbers
from millstream.inference.combined.output_types import OutputTypes
from millstream.inference.combined.route_executor import RouteExecutor
from millstream.inference.combined.routing import NO_MODEL, ByValue
from millstream.inference.combined.tenant_executor import TenantExecutor
from millstream.inference.combined.tenant_models import TenantModels
from millstream.inference.errors import ExecutorUnavailable, ModelConfigError
from millstream.inference.executors.interface import ANSWERED_BY, Tensors
from millstream.inference.model_id import ModelId
from millstream.inference.signature import TensorInput
from tests.inference.combined.scaling import Array, Scaling, member, results_of, unfit, version

KEYS = ["a", "b", "c", "", "other"]
XS = st.integers(0, 20)
BAD = st.sets(XS, max_size=4)
EVENTS = st.lists(st.tuples(st.sampled_from(KEYS), XS, st.booleans(), st.booleans()), min_size=1, max_size=50)


def inputs_of(events: Sequence[tuple[str, int, bool, bool]]) -> dict[str, Any]:
    """Inputs, of which the second and the third model may not fit an event."""
    return {
        "key": np.array([key for key, *_ in events], object),
        "x": np.array([x for _, x, *_ in events], np.float64),
        **unfit([[second, third] for *_, second, third in events]),
    }


def expected_of(model: int, x: int, bad: Sequence[set[int]], unfits: Sequence[bool]) -> Any:
    """What a model makes of an event. `unfits`: for each model, whether the event lacks its inputs."""
    if unfits[model]:
        return "unfit"
    return "model_rejected" if x in bad[model] else x * (model + 1)


@given(EVENTS, st.tuples(BAD, BAD, BAD), st.sampled_from([NO_MODEL, 2]))
def test_route(events: list[Any], bad: tuple[set[int], ...], default: int) -> None:
    types = OutputTypes()
    columns = (None, 0, 1)
    members = [
        member(f"m{at}", Scaling(at + 1, bad[at]), unfit=columns[at], types=types, number=at + 5) for at in range(3)
    ]
    executor = RouteExecutor(members, ByValue("country", "key", {"a": 0, "b": 1, "c": 2}, default))
    expected: list[Any] = []
    for key, x, second, third in events:
        model = {"a": 0, "b": 1, "c": 2}.get(key, default)
        found = "no_model" if model == NO_MODEL else expected_of(model, x, bad, (False, second, third))
        expected.append(found if isinstance(found, str) else {"y": found, ANSWERED_BY: model})
    assert results_of(executor.run, inputs_of(events)) == expected
    assert executor.models == (ModelId("m0", 5), ModelId("m1", 6), ModelId("m2", 7))
    # Each model runs once, and again only to find its own bad events.
    assert all(len(each.executor.sizes) <= 1 for each in members if not each.executor.bad)  # type: ignore[attr-defined]


@given(EVENTS, st.tuples(BAD, BAD, BAD), st.floats(-1, 25), st.floats(0, 45))
def test_cascade(events: list[Any], bad: tuple[set[int], ...], below: float, width: float) -> None:
    types = OutputTypes()
    columns = (None, 0, 1)
    members = [member(f"m{at}", Scaling(at + 1, bad[at]), unfit=columns[at], types=types) for at in range(3)]
    bounds = [Escalation("y", float("-inf"), below), Escalation("y", 5.0, 5.0 + width)]
    executor = CascadeExecutor(members, bounds)
    counted: list[tuple[int, int]] = []
    executor.on_answered = lambda seen, escalated: counted.append((seen, escalated))
    expected: list[Any] = []
    sure = 0
    for _, x, second, third in events:
        unfits = (False, second, third)
        step, found = 0, expected_of(0, x, bad, unfits)
        if not isinstance(found, str) and found < below:
            step, found = 1, expected_of(1, x, bad, unfits)
            if not isinstance(found, str) and 5.0 < found < 5.0 + width:
                step, found = 2, expected_of(2, x, bad, unfits)
        sure += not step
        ran = " ".join(f"m{at}:1" for at in range(step + 1))
        answer = {"y": found, "escalated": step > 0, "models": ran, ANSWERED_BY: step}
        expected.append(found if isinstance(found, str) else answer)
    assert results_of(executor.run, inputs_of(events)) == expected
    assert counted == [(len(events), len(events) - sure)]


def test_event_whose_confidence_is_nan_is_escalated() -> None:
    assert Escalation("y", float("-inf"), 0.5).goes_on({"y": np.array([0.4, np.nan, 0.6])}, "m").tolist() == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "outputs",
    [
        {"p": np.array([[0.1, 0.9], [0.4, 0.6]])},
        {"p.cat": np.array([0.1, 0.4]), "p.dog": np.array([0.9, 0.6])},
        {"p": np.array([[0.9], [0.6]])},
    ],
)
def test_highest_of_several_scores_is_the_confidence(outputs: dict[str, Array]) -> None:
    assert Escalation("p", float("-inf"), 0.8).goes_on(outputs, "m").tolist() == [False, True]


def test_output_that_is_no_confidence_is_refused() -> None:
    executor = CascadeExecutor([member("small", Scaling(1)), member("large", Scaling(1))], [Escalation("z", 0, 1)])
    with pytest.raises(ModelConfigError, match=r"model small version 1 .*expected an output `z` of numbers.*found y\."):
        executor.answer_blank()


def ensemble(bad: Sequence[set[int]]) -> EnsembleExecutor:
    """`first` and `second` take events; `judge` takes the mean of the two."""
    entry = TensorInput("x", ("unused",), False, "float64", ())
    mean = Source("mean", (("first", "y"), ("second", "y")), (), "place")
    judge = Member(version("m2"), Scaling(3, bad[2]), {}, None)
    return EnsembleExecutor(
        ModelId("all", 4),
        [
            Step("judge", judge, [Fed(entry, mean)]),
            Step("first", member("m0", Scaling(1, bad[0]))),
            Step("second", member("m1", Scaling(2, bad[1]))),
        ],
        {"verdict": Source(None, (("judge", "y"),)), "all": Source("stack", (("first", "y"), ("second", "y")))},
    )


@given(EVENTS, st.tuples(BAD, BAD, BAD))
def test_ensemble(events: list[Any], bad: tuple[set[int], ...]) -> None:
    expected: list[Any] = []
    for _, x, *_ in events:
        if x in bad[0] or x in bad[1] or x * 1.5 in bad[2]:
            expected.append("model_rejected")
        else:
            told = {"verdict": x * 4.5, "all": [x, x * 2], "models": "m2:1 m0:1 m1:1", ANSWERED_BY: 0}
            expected.append(told)
    executor = ensemble(bad)
    assert results_of(executor.run, inputs_of(events)) == expected
    assert executor.models == (ModelId("all", 4),)


def test_input_that_an_output_does_not_fit_is_refused() -> None:
    entry = TensorInput("x", ("unused",), False, "float64", (2,))
    steps = [
        Step("a", member("m0", Scaling(1))),
        Step("b", Member(version("m1"), Scaling(1), {}, None), [Fed(entry, Source(None, (("a", "y"),), (), "here"))]),
    ]
    executor = EnsembleExecutor(ModelId("e", 1), steps, {"y": Source(None, (("b", "y"),))})
    with pytest.raises(
        ModelConfigError, match=r"here: expected \[2\] x float64 per event for tensor `x`, found \[\] x float64"
    ):
        executor.answer_blank()


class Repository:
    """Models of tenants a, b and c; that of `c` can't be loaded."""

    def __init__(self, bad: Sequence[set[int]], size: int = 1) -> None:
        self.bad = bad
        self.size = size
        self.types = OutputTypes()
        self.opened: list[Scaling] = []
        self.away = False

    def load(self, tenant: str) -> tuple[Member, int] | None:
        if self.away:
            raise ExecutorUnavailable("the repository is away")
        if tenant == "c":
            raise ModelConfigError("the model of c is broken")
        if tenant not in {"a", "b"}:
            return None
        at = "ab".index(tenant)
        self.opened.append(Scaling(at + 1, self.bad[at]))
        return member(f"m-{tenant}", self.opened[-1], unfit=None, types=self.types), self.size

    @property
    def closed(self) -> list[bool]:
        return [executor.closed for executor in self.opened]


def tenants_of(repository: Repository, budget: int, *, default: bool) -> TenantExecutor:
    pattern = member("world", Scaling(3, repository.bad[2]), types=repository.types)
    models = TenantModels(repository.load, budget)
    return TenantExecutor("tenant", "key", models, pattern, pattern if default else None, bool, ModelNumbers())


@given(st.lists(EVENTS, min_size=1, max_size=4), st.tuples(BAD, BAD, BAD), st.integers(1, 3), st.booleans())
def test_tenants(batches: list[list[Any]], bad: tuple[set[int], ...], budget: int, default: bool) -> None:
    repository = Repository(bad)
    executor = tenants_of(repository, budget, default=default)
    for events in batches:
        found = results_of(executor.run, inputs_of(events))
        for (key, x, *_), answer in zip(events, found, strict=True):
            model = {"a": 0, "b": 1}.get(key, 2)
            if key == "c" or (model == 2 and not default):
                assert answer == "no_model"
            elif x in bad[model]:
                assert answer == "model_rejected"
            else:
                assert answer["y"] == x * (model + 1)
                assert executor.models[answer[ANSWERED_BY]].name == ("m-a", "m-b", "world")[model]
        assert executor.counts().bytes <= budget
        assert repository.closed.count(False) == executor.counts().models
    executor.close()
    assert all(repository.closed)


def test_threads_share_the_models_of_tenants() -> None:
    types = OutputTypes()
    opened: list[Scaling] = []

    def load(tenant: str) -> tuple[Member, int]:
        opened.append(Scaling(int(tenant)))
        return member(f"m{tenant}", opened[-1], types=types), 1

    models = TenantModels(load, 3)
    pattern = member("m0", Scaling(0), types=types)
    executor = TenantExecutor("tenant", "key", models, pattern, None, bool, ModelNumbers())

    def run(seed: int) -> None:
        chance = np.random.default_rng(seed)
        for _ in range(100):
            keys, x = chance.integers(1, 9, 20), chance.random(20)
            outputs = executor.run({"key": keys.astype(str).astype(object), "x": x})
            assert outputs["y"].tolist() == (keys * x).tolist()
            assert [executor.models[at].name for at in outputs[ANSWERED_BY]] == [f"m{key}" for key in keys]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert executor.counts().bytes <= 3
    executor.close()
    assert all(each.closed for each in opened)


def test_outage_of_the_repository_blames_no_event() -> None:
    repository = Repository([set(), set(), set()])
    executor = tenants_of(repository, 2, default=False)
    repository.away = True
    with pytest.raises(ExecutorUnavailable):
        executor.run(inputs_of([("a", 1, False, False)]))
    repository.away = False
    assert results_of(executor.run, inputs_of([("a", 1, False, False)]))[0]["y"] == 1


def test_tenant_with_other_outputs_is_rejected_alone() -> None:
    class Odd(Scaling):
        def run(self, inputs: Tensors) -> dict[str, Array]:
            return {"z": inputs["x"]}

    types = OutputTypes()
    executors: dict[str, Scaling] = {"a": Scaling(1), "b": Odd(1)}
    models = TenantModels(lambda tenant: (member(tenant, executors[tenant], types=types), 1), 10)
    pattern = member("world", Scaling(1), types=types)
    executor = TenantExecutor("tenant", "key", models, pattern, None, lambda _: True, ModelNumbers())
    executor.answer_blank()
    events = [("a", 1, False, False), ("b", 2, False, False), ("a", 3, False, False)]
    first, second, third = results_of(executor.run, inputs_of(events))
    assert (first["y"], second, third["y"]) == (1, "no_model", 3)
    assert executors["b"].closed
    assert results_of(executor.run, inputs_of(events))[1] == "no_model"


def test_outputs_that_differ_between_models_are_refused() -> None:
    types = OutputTypes()
    wide = member("wide", Scaling(1, dtype=np.float32), types=types)
    wider = member("wider", Scaling(1, dtype=np.float64), types=types)
    executor = RouteExecutor([wide, wider], ByValue("f", "key", {"a": 0, "b": 1}, 0))
    executor.answer_blank()
    # The type does not depend on which models answer a batch.
    assert executor.run(inputs_of([("a", 1, False, False)]))["y"].dtype == np.float64

    class Pair(Scaling):
        def run(self, inputs: Tensors) -> dict[str, Array]:
            return {"y": np.zeros((len(inputs["x"]), 2))}

    class Column(Scaling):
        def run(self, inputs: Tensors) -> dict[str, Array]:
            return {"y": np.zeros((len(inputs["x"]), 1))}

    members = [member("m", Scaling(1), types=(types := OutputTypes())), member("column", Column(1), types=types)]
    RouteExecutor(members, ByValue("f", "key", {}, 0)).answer_blank()  # one value per event is the same in either shape

    class Text(Scaling):
        def run(self, inputs: Tensors) -> dict[str, Array]:
            return {"y": np.array(["yes"] * len(inputs["x"]))}

    for odd, said in (
        (Pair(1), r"expected shape \[\] per event of output `y`"),
        (Text(1), "expected float64 in output `y`"),
    ):
        members = [member("m", Scaling(1), types=(types := OutputTypes())), member("odd", odd, types=types)]
        with pytest.raises(ModelConfigError, match=said):
            RouteExecutor(members, ByValue("f", "key", {}, 0)).answer_blank()
