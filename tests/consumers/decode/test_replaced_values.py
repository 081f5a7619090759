"""Values that the model gets in place of the events' own are counted by field, and told once nearly all of a field are."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.replaced_values import (
    FEWEST_VALUES,
    WINDOW,
    Replaceable,
    ReplacedValues,
    replaceable_in,
)
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.observability.seldom import LOG_INTERVAL
from millstream.inference.conversions import Conversion
from millstream.inference.replaced import Replaced, Replacements, Source
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput
from millstream.inference.vocabulary import Vocabulary
from millstream.schemas.column import column_of
from tests.consumers.in_memory import NumberDecoder, polled
from tests.consumers.isolating import isolating_decoder

if TYPE_CHECKING:
    from pathlib import Path

AGE, COUNTRY = Source("customer.age", "missing"), Source("country", "unknown")
NUMBER = Source("number", "missing")


@dataclass
class Noting:
    """Notes replaced values at a time that the test sets."""

    caplog: pytest.LogCaptureFixture
    folder: Path
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.metrics = Metrics("p")
        vocabulary = Vocabulary(("other", "DE"), 0, "countries.txt")
        conversions = Conversion(missing=math.nan), Conversion(vocabulary)
        entry = TensorInput("t", ("customer.age", "country"), False, "float32", (2,), conversions=conversions, line=3)
        model = ModelVersion("m", 1, self.folder / "model.onnx", "onnx", Signature((entry,), ()), ())
        self.values = ReplacedValues(replaceable_in(model), self.metrics, lambda: self.now)

    def absent(self, events: int, of: int = WINDOW) -> None:
        self.values.note(Replacements(of, {AGE: Replaced(events, of)} if events else {}))

    def unknown(self, values: int, of: int, events: int = WINDOW) -> None:
        self.values.note(Replacements(events, {COUNTRY: Replaced(values, of, ("XX", "x\ny"))}))

    def warnings(self) -> list[str]:
        return [record.getMessage() for record in self.caplog.records if record.levelno == logging.WARNING]

    def counted(self, metric: str, field: str) -> float | None:
        labels = {"pipeline": "p", "model": "m", "field": field}
        return self.metrics.registry.get_sample_value(f"millstream_{metric}_values_total", labels)


@pytest.fixture
def noting(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Noting:
    return Noting(caplog, tmp_path)


def test_replaced_values_are_counted_by_field_from_zero(noting: Noting) -> None:
    assert noting.counted("missing", "customer.age") == noting.counted("unknown", "country") == 0
    noting.absent(30)
    noting.unknown(5, 7)
    assert noting.counted("missing", "customer.age") == 30
    assert noting.counted("unknown", "country") == 5


def test_field_that_goes_away_is_told_once_with_what_to_do(noting: Noting) -> None:
    noting.absent(10)
    noting.absent(WINDOW // 2)  # in the middle of a window
    assert not noting.warnings()
    for _ in range(5):
        noting.absent(WINDOW // 2, WINDOW // 2)
        noting.now += LOG_INTERVAL
    [said] = noting.warnings()
    assert said == (
        f"customer.age was absent or null in {WINDOW} of the last {WINDOW} events; the model gets nan instead, as "
        f"`missing` says in model m version 1 ({noting.folder / 'config.yaml'}:3). If the producer renamed it, "
        "write its new name in the mapping (`millstream docs models#a-field-that-is-renamed`)."
    )


def test_few_events_before_a_change_do_not_hide_that_a_field_goes_away_with_many(noting: Noting) -> None:
    noting.absent(30)
    noting.absent(15, WINDOW // 2)
    assert not noting.warnings()
    noting.absent(300, 300)
    [said] = noting.warnings()
    assert "in 300 of the last 300 events" in said


def test_field_that_comes_back_and_goes_away_again_is_told_again_but_not_often(noting: Noting) -> None:
    for _ in range(5):
        noting.absent(0)
        noting.absent(WINDOW)
    assert len(noting.warnings()) == 1
    noting.now += LOG_INTERVAL
    noting.absent(WINDOW)
    assert len(noting.warnings()) == 2


def test_field_that_is_rare_from_the_beginning_is_not_told(noting: Noting) -> None:
    for _ in range(3):
        noting.absent(WINDOW - 1)
    assert not noting.warnings()


def test_field_that_a_part_of_a_backlog_lacks_is_told_with_what_was_usual(noting: Noting) -> None:
    noting.absent(5, 5 * WINDOW)
    assert noting.warnings() == []
    noting.absent(90)
    assert len(noting.warnings()) == 1
    assert (
        "customer.age was absent or null in 90 of the last 200 events, before in 5 of 1,000; the model gets nan"
        in noting.warnings()[0]
    )


def test_vocabulary_that_lacks_a_part_of_the_values_is_told_with_what_was_usual(noting: Noting) -> None:
    noting.unknown(3, 1000, events=1000)
    noting.unknown(150, 200)
    assert len(noting.warnings()) == 1
    assert (
        "country: 150 of the last 200 values are no entry of the vocabulary, before in 3 of 1,000, such as"
        in noting.warnings()[0]
    )


@pytest.mark.parametrize(
    ("usual", "of"), [(20, 5 * WINDOW), (0, 4 * WINDOW)], ids=["often absent", "few events before"]
)
def test_field_that_is_absent_more_often_than_before_is_not_told_if_that_says_little(
    noting: Noting, usual: int, of: int
) -> None:
    noting.absent(usual, of)
    noting.absent(90)
    assert noting.warnings() == []


def test_rise_is_told_once_until_the_field_is_back(noting: Noting) -> None:
    def pass_a_minute() -> None:
        noting.now += LOG_INTERVAL

    noting.absent(0, 1_000_000)
    for absent, warnings in ((90, 1), (60, 1), (0, 1), (90, 2)):
        pass_a_minute()
        noting.absent(absent)
        assert len(noting.warnings()) == warnings
    pass_a_minute()
    noting.absent(WINDOW)
    assert "customer.age was absent or null in 200 of the last 200 events; the model" in noting.warnings()[2]
    pass_a_minute()
    noting.absent(90)
    assert len(noting.warnings()) == 3


def test_field_of_items_that_is_rare_from_the_beginning_is_not_told_though_its_first_window_has_few(
    noting: Noting,
) -> None:
    few = FEWEST_VALUES // 2
    noting.values.note(Replacements(WINDOW, {AGE: Replaced(few, WINDOW, empty=WINDOW - few)}))
    rare = Replaced(FEWEST_VALUES - 1, WINDOW, empty=WINDOW - FEWEST_VALUES)
    noting.values.note(Replacements(WINDOW, {AGE: rare}))
    assert not noting.warnings()


def test_field_that_was_never_there_is_told(noting: Noting) -> None:
    noting.absent(WINDOW - 1, WINDOW - 1)
    assert not noting.warnings()
    noting.absent(1, 1)
    assert len(noting.warnings()) == 1


def test_values_that_no_vocabulary_has_are_told_with_examples_and_the_file(noting: Noting) -> None:
    noting.unknown(200, 200)
    [said] = noting.warnings()
    assert said.startswith(
        "country: 200 of the last 200 values are no entry of the vocabulary, such as 'XX', 'x\\ny'; the model gets the index 0 "
        "instead, as `unknown` says in model m "
    )
    assert said.endswith("If it is not the one that the model was trained with, correct countries.txt.")


def test_field_of_a_look_up_is_named_as_one(tmp_path: Path) -> None:
    conversions = (Conversion(missing=0.5),)
    entry = TensorInput(
        "t", ("[customer].orders",), False, "float32", (1,), mapped_at="p.yaml:7", conversions=conversions
    )
    model = ModelVersion("m", 1, tmp_path / "model.onnx", "onnx", Signature((entry,), ()), ())
    [(source, words)] = replaceable_in(model).items()
    assert words.text(source, Replaced(2, 2), "2") == (
        "[customer].orders was absent or null in 2 of 2 events; the model gets 0.5 instead, as `missing` says in "
        "p.yaml:7. If the store renamed it, write its new name in the mapping."
    )


def test_field_of_items_that_goes_away_is_told_though_some_lists_are_empty(noting: Noting) -> None:
    empty = WINDOW // 10
    noting.values.note(Replacements(WINDOW, {AGE: Replaced(0, WINDOW, empty=empty)}))
    assert not noting.warnings()
    noting.values.note(Replacements(WINDOW, {AGE: Replaced(WINDOW - empty, WINDOW, empty=empty)}))
    [said] = noting.warnings()
    assert f"customer.age was absent or null in {WINDOW - empty} of the last {WINDOW - empty} events" in said
    assert noting.counted("missing", "customer.age") == WINDOW - empty


def test_outage_of_the_feature_store_gives_one_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    names = tuple(f"[customer].f{number}" for number in range(7))
    entry = TensorInput("t", names, False, "float32", (7,), conversions=(Conversion(missing=0.5),) * 7)
    model = ModelVersion("m", 1, tmp_path / "model.onnx", "onnx", Signature((entry,), ()), ())
    sources = replaceable_in(model)
    values = ReplacedValues(sources, Metrics("p"), lambda: 1000.0)
    values.note(Replacements(WINDOW, {source: Replaced(WINDOW, WINDOW) for source in sources}))
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "[customer].f0, [customer].f1, [customer].f2, [customer].f3, [customer].f4 and 2 more were absent"
    )


def test_absent_list_of_variable_length_has_no_items_in_its_place(tmp_path: Path) -> None:
    entry = TensorInput(
        "t", ("tags[]",), True, "int64", (4,), mapped_at="p.yaml:7", conversions=(Conversion(missing=1),), max_length=4
    )
    model = ModelVersion("m", 1, tmp_path / "model.onnx", "onnx", Signature((entry,), ()), ())
    [(source, words)] = replaceable_in(model).items()
    said = words.text(source, Replaced(2, 2), "2")
    assert "the model gets 1 instead of an item, and no items instead of a list, as `missing` says in p.yaml:7" in said


def test_few_values_of_a_vocabulary_say_nothing(noting: Noting) -> None:
    noting.unknown(FEWEST_VALUES - 1, FEWEST_VALUES - 1)
    assert not noting.warnings()


def test_decoded_events_are_counted(tmp_path: Path) -> None:
    entry = TensorInput("x", ("number",), False, "float32", (1,), conversions=(Conversion(missing=math.nan),))
    model = ModelVersion("m", 1, tmp_path / "model.onnx", "onnx", Signature((entry,), ()), ())
    fields = EventFields(event_id=None, event_time=None)
    sources = replaceable_in(model)
    decoder = BlockDecoder(NumberDecoder(), fields, model.signature, allow_nan=False, replaceable=sources)
    metrics = Metrics("p")
    stage = isolating_decoder(decoder, metrics)
    for values in ([b"1", b"null", b"x", None], [b"null"]):
        [block] = stage.blocks(polled(values))
        assert block.replaced.sources == {NUMBER: Replaced(1, len(block.good))}
    labels = {"pipeline": "p", "model": "m", "field": "number"}
    assert metrics.registry.get_sample_value("millstream_missing_values_total", labels) == 2


def test_events_without_their_time_or_cost_are_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = TensorInput("x", ("number",), False, "float32", (1,))
    model = ModelVersion("m", 1, tmp_path / "model.onnx", "onnx", Signature((entry,), ()), ())
    extra = {
        name: lambda numbers: column_of([None if n == 1 else 7 for n in numbers], "int64") for name in ("at", "size")
    }
    own = {
        Source("at", "event_time"): Replaceable("at", "another time", "Look.", ()),
        Source("size", "cost"): Replaceable("size", "no cost", "Look.", ()),
    }
    fields = EventFields(None, "at", cost="size")
    decoder = BlockDecoder(NumberDecoder(extra), fields, model.signature, allow_nan=False, replaceable=own)
    metrics = Metrics("p")
    stage = isolating_decoder(decoder, metrics)
    for values in ([b"2"] * WINDOW, [b"1", b"2", b"x"]):
        list(stage.blocks(polled(values)))
    for name in ("event_times", "costs"):
        assert metrics.registry.get_sample_value(f"millstream_missing_{name}_total", {"pipeline": "p"}) == 1
    list(stage.blocks(polled([b"2"] * WINDOW)))
    assert not caplog.records
    list(stage.blocks(polled([b"1"] * WINDOW)))
    assert [record.getMessage() for record in caplog.records] == [
        f"{name} was absent or null in {WINDOW} of the last {WINDOW} events; {instead}. Look."
        for name, instead in (("at", "another time"), ("size", "no cost"))
    ]
