from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.by_length import ByLength
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import join_rows
from millstream.inference.features import to_tensors
from millstream.inference.repository import ModelVersion, load_version
from millstream.inference.signature import TensorInput
from millstream.inference.varying import groups_of, length_buckets_of
from millstream.schemas.dtypes import ListOf
from tests.inference.models import tensor, write_model
from tests.inference.test_ragged import lists
from tests.schemas.tables import table_of

ITEMS = TensorInput("items", ("x",), array=True, dtype="float32", shape=(40,), max_length=40)
OTHERS = TensorInput("others", ("z",), array=True, dtype="int64", shape=(40,), max_length=40, pad=-1)
MASK = TensorInput("mask", (), array=True, dtype="float32", shape=(40,), max_length=40, mask=True)
LISTS = {"x": ListOf("float64"), "z": ListOf("int64")}
CONFIG = """
inputs:
  - {tensor: items, field: x, dtype: float32, max_length: 40, pad: 7}
  - {tensor: mask, mask: true, dtype: float32}
outputs: [{tensor: y}]
length_buckets: [4, 16]
"""


def summing(repository: Path, length: int | str = "L", config: str = CONFIG) -> ModelVersion:
    """`y` = the sum of an event's items."""
    return write_model(
        repository,
        [
            helper.make_node("Mul", ["items", "mask"], ["own"]),
            helper.make_node("ReduceSum", ["own", "axis"], ["y"], keepdims=1),
        ],
        [tensor("items", ["N", length]), tensor("mask", ["N", length])],
        [tensor("y", ["N", 1])],
        constants=[helper.make_tensor("axis", TensorProto.INT64, [1], [1])],
        config=config,
    )


def python_model(repository: Path, body: str, config: str = CONFIG) -> ModelVersion:
    folder = repository / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config)
    (folder / "model.py").write_text(f"class Model:\n    def __init__(self, folder, device): ...\n{body}")
    return load_version(repository, "m")


def tensors(events: list[list[float]]) -> dict[str, Any]:
    fitted = to_tensors(table_of({"x": ListOf("float32")}, x=events), [ITEMS], allow_nan=False)
    assert fitted.unfit == []
    return fitted.tensors


# Which events run together


@given(
    st.lists(st.integers(0, 64), min_size=1, max_size=40),
    st.sampled_from([(64,), (4, 64), (8, 16, 64), (4, 16, 32, 64)]),
    st.sampled_from([0.0, 10.0, 200.0, 1e9]),
)
def test_groups_hold_each_event_once_and_cost_least(lengths: list[int], sizes: tuple[int, ...], call: float) -> None:
    groups = groups_of(np.array(lengths), sizes, call)
    assert sorted(row for _, rows in groups for row in rows.tolist()) == list(range(len(lengths)))
    assert all(lengths[row] <= size for size, rows in groups for row in rows.tolist())
    found = sum(call + len(rows) * size for size, rows in groups)
    # Every way to use some of the sizes, the longest that is needed among them.
    costs = []
    for used in product([False, True], repeat=len(sizes)):
        kept = [size for size, use in zip(sizes, used, strict=True) if use]
        if not kept or kept[-1] < max(lengths):
            continue
        padded = [next(size for size in kept if size >= length) for length in lengths]
        costs.append(call * len(set(padded)) + sum(padded))
    assert found == pytest.approx(min(costs))


@pytest.mark.parametrize(
    ("configured", "longest", "expected"),
    [
        ([], 512, (16, 32, 64, 128, 256, 512)),
        ([], 500, (16, 32, 64, 128, 256, 500)),
        ([], 10, (10,)),
        ([], 16, (16,)),
        ([8, 100], 300, (8, 100, 300)),
        ([300], 300, (300,)),
    ],
)
def test_lengths_are_powers_of_two_where_none_are_given(
    configured: list[int], longest: int, expected: tuple[int, ...]
) -> None:
    assert length_buckets_of(configured, longest) == expected


# From fields to tensors


def test_events_of_any_length_become_ragged_tensors() -> None:
    table = table_of(LISTS, x=[[1.0], [], [2.0, 3.0]], z=[[1], [], [2, 3]])
    fitted = to_tensors(table, [ITEMS, OTHERS, MASK], allow_nan=False)
    assert fitted.unfit == []
    assert fitted.tensors["items"].lengths.tolist() == [1, 0, 2]
    assert lists(fitted.tensors["items"]) == [[1.0], [], [2.0, 3.0]]
    assert lists(fitted.tensors["others"]) == [[1], [], [2, 3]]
    assert fitted.tensors["others"].values.dtype == np.int64


@pytest.mark.parametrize(
    ("x", "z", "said"),
    [
        (None, [1], "field `x` is absent or null, but tensor `items` needs a list"),
        ([0.5] * 41, [1] * 41, "field `x` has 41 values, but tensor `items` takes up to 40 values"),
        ([0.5, 1.0], [1], "fields `x` and `z` differ in length"),
        ([0.5, None], [1, 2], "field `x`[1] is absent or null, but tensor `items` needs a value"),
        ([0.5, float("nan")], [1, 2], "field `x`[1] is NaN or infinite"),
        ([0.5, 1e300], [1, 2], "field `x`[1] is 1e+300, too large for float32"),
    ],
)
def test_event_that_does_not_fit_says_why_and_spares_the_others(x: Any, z: Any, said: str) -> None:
    table = table_of(LISTS, x=[[1.0, 2.0, 3.0], x, []], z=[[1, 2, 3], z, []])
    fitted = to_tensors(table, [ITEMS, OTHERS], allow_nan=False)
    assert [(unfit.row, said in unfit.error) for unfit in fitted.unfit] == [(1, True)], fitted.unfit
    assert fitted.rows.tolist() == [0, 2]
    assert lists(fitted.tensors["items"]) == [[1.0, 2.0, 3.0], []]


# Through a model


@given(st.lists(st.lists(st.integers(-9, 9).map(float), max_size=40), min_size=1, max_size=12), st.integers(0, 11))
@settings(max_examples=60, deadline=None)
def test_each_event_is_answered_as_if_alone(
    model: ByLength, cheap_calls: ByLength, events: list[list[float]], cut: int
) -> None:
    parts = [part for part in (events[:cut], events[cut:]) if part]
    together = join_rows([tensors(part) for part in parts])
    for executor in (model, cheap_calls):
        assert executor.run(together)["y"].tolist() == [[sum(event)] for event in events]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ByLength:
    executor = open_executor(summing(tmp_path_factory.mktemp("dear")), device="cpu", max_events=16)
    assert isinstance(executor, ByLength)
    executor.warm_up()
    return executor


@pytest.fixture(scope="module")
def cheap_calls(tmp_path_factory: pytest.TempPathFactory) -> ByLength:
    """It was not warmed up, so that a call costs its items alone."""
    executor = open_executor(summing(tmp_path_factory.mktemp("cheap")), device="cpu", max_events=16)
    assert isinstance(executor, ByLength)
    return executor


def test_events_of_like_length_run_together_padded_as_little_as_they_need(tmp_path: Path) -> None:
    shapes = "    def predict(self, inputs):\n        n, size = inputs['items'].shape\n        return {'y': [[n, size]] * n}\n"
    executor = open_executor(python_model(tmp_path, shapes), max_events=16)
    answers = executor.run(tensors([[1.0] * 3, [1.0] * 20, [], [1.0] * 40, [1.0] * 16]))
    assert answers["y"].tolist() == [[2, 4], [2, 40], [2, 4], [2, 40], [1, 16]]


def test_padding_is_what_the_config_says(tmp_path: Path) -> None:
    padding = (
        "    def predict(self, inputs):\n        return {'y': inputs['items'][:, -1:] + 10 * inputs['mask'][:, :1]}\n"
    )
    executor = open_executor(python_model(tmp_path, padding), max_events=16)
    assert executor.run(tensors([[1.0] * 3, []]))["y"].tolist() == [[17.0], [7.0]]


def test_texts_and_fixed_shapes_run_beside_one_another(tmp_path: Path) -> None:
    config = """
inputs:
  - {tensor: words, field: w, dtype: string, max_length: 40, pad: "-"}
  - {tensor: weight, fields: [a], dtype: float32}
outputs: [{tensor: y}]
length_buckets: [2, 40]
"""
    body = """
    def predict(self, inputs):
        assert inputs["words"].dtype == object
        return {"y": [f"{' '.join(row)} {a:.0f}"[:9] for row, (a,) in zip(inputs["words"], inputs["weight"])]}
"""
    version = python_model(tmp_path, body, config)
    words = [["so", "far"], [], ["a", "b", "c"], ["ä"]]
    events = table_of({"w": ListOf("string"), "a": "float64"}, w=words, a=[1.0, 2.0, 3.0, 4.0])
    fitted = to_tensors(events, version.signature.inputs, allow_nan=False)
    answers = open_executor(version, max_events=16).run(fitted.tensors)
    assert answers["y"].tolist() == ["so far 1", "- - 2", "a b c - -", "ä - 4"]


def test_output_of_the_inputs_length_is_refused(tmp_path: Path) -> None:
    executor = open_executor(
        python_model(tmp_path, "    def predict(self, inputs):\n        return {'y': inputs['items']}\n"), max_events=16
    )
    with pytest.raises(
        ModelConfigError, match=r"output `y` has another shape .* \[4\], \[40\].*`length_buckets: \[40\]`"
    ):
        executor.run(tensors([[1.0], [1.0] * 30]))


def test_model_of_one_length_says_how_to_run_it(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"takes 40 items only.*`length_buckets: \[40\]`"):
        open_executor(summing(tmp_path / "a", 40), device="cpu")
    longer = CONFIG.replace("max_length: 40", "max_length: 64")
    with pytest.raises(ModelConfigError, match=r"takes 40 items only.*`max_length: 40` and `length_buckets: \[40\]`"):
        open_executor(summing(tmp_path / "c", 40, longer), device="cpu")
    fixed = open_executor(summing(tmp_path / "b", 40, CONFIG.replace("[4, 16]", "[40]")), device="cpu")
    assert fixed.run(tensors([[1.0, 2.0], []]))["y"].tolist() == [[3.0], [0.0]]


# What config.yaml may say


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("max_length: 40", "max_length: 40, shape: [40]"), "`max_length` is for a `field` whose length varies"),
        (("field: x", "fields: [x]"), "`max_length` is for a `field` whose length varies"),
        (
            ("max_length: 40, pad: 7", "shape: [40]"),
            "`length_buckets`, `mask` and `token_types` are for inputs of varying length",
        ),
        (("pad: 7", "pad: none"), "`pad` is a value of the dtype"),
        (("mask: true", "mask: true, field: x"), "write either `field`"),
        (("mask: true", "mask: true, shape: [4]"), "leave `shape` out"),
        (
            ("{tensor: mask, mask: true", "{tensor: mask, field: z, max_length: 41"),
            "share one `max_length`, found 40, 41",
        ),
        (("[4, 16]", "[4, 41]"), "`length_buckets` go up to `max_length`, 40"),
    ],
)
def test_wrong_config_is_said(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in CONFIG
    with pytest.raises(ModelConfigError) as caught:
        python_model(tmp_path, "    predict = None\n", CONFIG.replace(*change))
    assert said in str(caught.value)


def test_pipeline_maps_another_field_and_no_mask(tmp_path: Path) -> None:
    summing(tmp_path)
    assert load_version(tmp_path, "m", fields={"items": "tokens"}).signature.fields == ["tokens"]
    wrong: list[dict[str, str | list[str]]] = [{"mask": "x"}, {"items": ["a", "b"]}]
    for fields in wrong:
        with pytest.raises(ModelConfigError, match=r"a mask, which no field fills|one array field fills it"):
            load_version(tmp_path, "m", fields=fields)
