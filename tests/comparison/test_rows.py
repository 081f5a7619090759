"""What of a record counts: scores, agreement, labels."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.consumers.comparison.chunks import Rows
from millstream.consumers.comparison.outcomes import Outcomes
from millstream.consumers.comparison.rows import LabelReader, Scoring, id_hash
from millstream.consumers.observability.seldom import MAX_EXAMPLE_LENGTH
from millstream.inference.class_answers import Classes
from millstream.pipeline.comparison_sections import Comparison, Labels
from millstream.schemas.comparisons import Comparisons, Pair, Variant
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.rows import encode_row

OUTCOME = {
    "type": "record",
    "name": "Outcome",
    "fields": [
        {"name": "event", "type": ["null", "string"]},
        {"name": "value", "type": ["null", "double"]},
        {"name": "late", "type": "boolean", "default": False},
        {"name": "told", "type": "string", "default": ""},
    ],
}

BINARY = Outcomes("classification")


def one_row(
    primary: dict[str, Any], shadow: dict[str, Any] | None, classes: Classes | None = None, **section: Any
) -> Any:
    """The row of one comparison."""
    comparison = Comparison.model_validate({"topic": "c", "evaluations": "e", **section})
    pair = Pair(Variant("m", 1, "primary"), Variant("m", 2))
    one = np.zeros(1)
    columns = Comparisons(
        np.zeros(1, np.int64),
        ["e"],
        np.ones(1, np.int64),
        [pair],
        np.zeros(1, np.uint16),
        [primary],
        [shadow],
        one,
        one,
    )
    [row] = Scoring.of(comparison, classes).rows(columns, np.array([7]))
    return row


def scored(primary: dict[str, Any], shadow: dict[str, Any] | None, **section: Any) -> Any:
    row = one_row(primary, shadow, **section)
    return row["primary"], row["shadow"], row["agreed"], bool(row["failed"])


@pytest.mark.parametrize(
    ("primary", "shadow", "section", "expected"),
    [
        ({"p": 0.4}, {"p": 0.6}, {}, (0.4, 0.6, 0, False)),
        ({"p": 0.4}, {"p": 0.6}, {"threshold": 0.3}, (0.4, 0.6, 1, False)),
        ({"a": 9.0, "p": 0.4}, {"a": 9.0, "p": 0.6}, {"output": "p"}, (0.4, 0.6, 0, False)),
        ({"y": 10.0}, {"y": 10.4}, {"task": "regression", "tolerance": 0.5}, (10.0, 10.4, 1, False)),
        ({"y": 10.0}, {"y": 10.6}, {"task": "regression", "tolerance": 0.5}, (10.0, 10.6, 0, False)),
        ({"yes": True}, {"yes": False}, {}, (1.0, 0.0, 0, False)),
        ({"c": [0.2, 0.8]}, {"c": [0.4, 0.6]}, {}, (None, None, 1, False)),
        ({"c": [0.2, 0.8]}, {"c": [0.6, 0.4]}, {"item": 1}, (0.8, 0.4, 0, False)),
        ({"c": [0.2, 0.8]}, {"c": [0.6]}, {"item": 1}, (0.8, None, 0, False)),
        ({"t": "late"}, {"t": "late"}, {}, (None, None, 1, False)),
        ({"t": ["a"]}, {"t": ["b"]}, {}, (None, None, 0, False)),
        ({"p": 0.4}, {"q": 0.6}, {}, (None, None, -1, False)),
        ({"p": math.inf}, {"p": math.nan}, {}, (None, None, 0, False)),
        ({"p": 0.4}, None, {}, (0.4, None, -1, True)),
        ({}, None, {}, (None, None, -1, True)),
    ],
)
def test_scores_and_agreement(
    primary: dict[str, Any], shadow: dict[str, Any] | None, section: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = scored(primary, shadow, **section)
    assert tuple(None if isinstance(v, float) and math.isnan(v) else v for v in found) == expected


def reader(folder: Path, outcomes: Outcomes = BINARY, **section: Any) -> tuple[LabelReader, DirectoryStore]:
    (folder / "3-outcome.avsc").write_text(json.dumps(OUTCOME))
    store = DirectoryStore(folder)
    fields = {"topic": "l", "schema": "outcome", "event_id": "event", "value": "value", **section}
    return LabelReader(Labels.model_validate(fields), store, outcomes), store


def read(labels: LabelReader, values: list[bytes | None]) -> tuple[list[str], Rows, int]:
    ids, rows, bad = labels.rows(values, [2] * len(values), list(range(10, 10 + len(values))))
    return ids, rows, bad.number


def test_avro_labels_are_read_and_the_others_counted(tmp_path: Path) -> None:
    labels, store = reader(tmp_path)
    rows = [("a", 1.0), (None, 1.0), ("b", None), ("c", 0.5), ("d", 0.0)]
    schema = store.by_id(3).definition
    values: list[bytes | None] = [encode_row(schema, 3, {"event": e, "value": v, "late": True}) for e, v in rows]
    ids, found, bad = read(labels, [*values, b"junk", None])
    assert (ids, bad) == (["a", "d"], 5)
    assert found["id"].tolist() == [id_hash("a"), id_hash("d")]
    assert found["value"].tolist() == [1.0, 0.0]
    assert found["position"].tolist() == [(2 << 48) + 10, (2 << 48) + 14]


def test_regression_takes_any_number(tmp_path: Path) -> None:
    labels, _ = reader(tmp_path, Outcomes("regression"), format="json")
    ids, found, bad = read(labels, [b'{"event": "a", "value": -3.5}', b'{"event": "b", "value": "x"}'])
    assert (ids, found["value"].tolist(), bad) == (["a"], [-3.5], 1)


@pytest.mark.parametrize(("schema", "value"), [("outcome", "late"), (None, "late"), (None, "minutes")])
def test_true_is_no_number_of_a_regression(tmp_path: Path, schema: str | None, value: str) -> None:
    labels, _ = reader(tmp_path, Outcomes("regression"), format="json", schema=schema, value=value)
    events = [{"event": "a", "late": True, "minutes": False}, {"event": "b", "late": False, "minutes": 3}]
    ids, found, bad = read(labels, [json.dumps(event).encode() for event in events])
    assert (ids, found["value"].tolist(), bad) == ((["b"], [3.0], 1) if value == "minutes" else ([], [], 2))


def test_true_and_false_are_labels(tmp_path: Path) -> None:
    labels, _ = reader(tmp_path, format="json", value="late")
    ids, found, bad = read(labels, [b'{"event": "a", "late": true}', b'{"event": "b", "late": false}'])
    assert (ids, found["value"].tolist(), bad) == (["a", "b"], [1.0, 0.0], 0)


def test_numbers_that_are_texts_are_labels_and_other_texts_are_not(tmp_path: Path) -> None:
    labels, _ = reader(tmp_path, format="json", value="told")
    texts = ["1", "0.0", "", "late", "nan", "2", "0_0"]
    ids, found, bad = read(labels, [b'{"event": "%b", "told": "%b"}' % ((text.encode(),) * 2) for text in texts])
    assert (ids, found["value"].tolist(), bad) == (["1", "0.0"], [1.0, 0.0], 5)


def test_labels_without_a_schema_are_read_by_their_paths(tmp_path: Path) -> None:
    labels, _ = reader(tmp_path, format="json", schema=None, event_id="about.event", value="outcome[0].late")
    found = [
        ({"event": "a"}, [{"late": True}]),
        ({"event": 7}, [{"late": 0}]),
        ({"event": "c"}, []),
        ({"event": None}, [{"late": 1}]),
        ({"event": "d"}, [{"late": "1"}]),
    ]
    values = [json.dumps({"about": about, "outcome": outcome}).encode() for about, outcome in found]
    ids, rows, bad = read(labels, [*values])
    assert (ids, rows["value"].tolist(), bad) == (["a", "7"], [1.0, 0.0], 3)


def test_label_that_breaks_the_decoder_is_none_and_the_others_of_its_fetch_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    labels, _ = reader(tmp_path, format="json")
    decode = JsonDecoder.decode

    def buggy(self: JsonDecoder, values: list[bytes]) -> Any:
        if b"evil" in values:
            raise OSError("failed to fill whole buffer")
        return decode(self, values)

    monkeypatch.setattr(JsonDecoder, "decode", buggy)
    good: list[bytes | None] = [b'{"event": "e%d", "value": 1.0}' % number for number in range(5)]
    ids, found, bad = read(labels, [*good[:3], b"evil", *good[3:]])
    assert (ids, bad) == ([f"e{number}" for number in range(5)], 1)
    assert found["position"].tolist() == [(2 << 48) + offset for offset in (10, 11, 12, 14, 15)]
    assert "the label at offset 13 of partition 2 breaks the decoder" in caplog.text


PETS = Classes(["bird", "cat", "dog"])


def class_rows(primary: dict[str, Any], shadow: dict[str, Any] | None, **section: Any) -> Any:
    return one_row(primary, shadow, PETS, task="multiclass", **section)


def test_classes_and_probabilities_of_both_models_are_kept() -> None:
    row = class_rows({"s": [0.2, 0.1, 0.7]}, {"s": [0.5, 0.25, 0.25]})
    assert (row["primary_class"], row["shadow_class"], row["agreed"]) == (2, 0, 0)
    assert row["shadow_probabilities"].tolist() == [0.5, 0.25, 0.25]
    assert (row["primary"], row["shadow"]) == (0.7, 0.5)


def test_probabilities_that_rounding_moved_outside_are_kept_within() -> None:
    row = class_rows({"s": [1.0000003576278687, -1e-9, 0.0]}, {"s": [0.5, 0.25, 0.25]})
    assert row["primary_probabilities"].tolist() == [1, 0, 0]
    assert row["primary"] == 1


def test_logits_give_a_class_and_no_probability() -> None:
    row = class_rows({"s": [2.0, -1.0, 0.0]}, {"s": [3.0, 0.0, 1.0]})
    assert (row["primary_class"], row["shadow_class"], row["agreed"]) == (0, 0, 1)
    assert np.isnan(row["primary_probabilities"]).all()


def test_class_that_is_not_compared_is_an_answer_that_agrees_with_none() -> None:
    row = class_rows({"label": "cat"}, {"label": "wolf"})
    assert (row["primary_class"], row["shadow_class"], row["agreed"]) == (1, -2, 0)
    row = class_rows({"label": "fox"}, {"label": "wolf"}, output="label")
    assert (row["primary_class"], row["shadow_class"], row["agreed"]) == (-2, -2, 0)


def test_shadow_that_failed_has_no_class() -> None:
    row = class_rows({"label": "cat"}, None)
    assert (row["primary_class"], row["shadow_class"], row["agreed"], row["failed"]) == (1, -1, -1, True)


@pytest.mark.parametrize(("schema", "value"), [("outcome", "told"), (None, "told")])
def test_labels_are_classes_by_name_or_index(tmp_path: Path, schema: str | None, value: str) -> None:
    labels, _ = reader(tmp_path, Outcomes("multiclass", PETS), format="json", value=value, schema=schema)
    texts = ["dog", "1", "wolf", "7", ""]
    ids, found, bad = read(labels, [b'{"event": "%b", "told": "%b"}' % ((text.encode(),) * 2) for text in texts])
    assert (ids, found["value"].tolist(), bad) == (["dog", "1"], [2.0, 1.0], 3)


LONG = json.dumps({"event": "a", "told": "x" * 2000}).encode()


@pytest.mark.parametrize(
    ("outcomes", "value", "found"),
    [
        (Outcomes("multiclass", PETS), b'{"event": "a", "told": "wolf"}', "'wolf' at `told`"),
        (Outcomes("multiclass", PETS), b'{"event": "a", "told": 7}', "'7' at `told`"),
        (Outcomes("multiclass", PETS), LONG, f"'{'x' * 57}...' at `told`"),
        (BINARY, b'{"event": "a", "told": 2}', "the number 2.0 at `told`"),
        (BINARY, b'{"told": 1}', "no event ID at `event`"),
        (BINARY, b'{"event": "a"}', "no label at `told`"),
        (BINARY, b'{"event": "a", "told": {}}', "a record that can't be read (told: expected "),
        (BINARY, None, "a record that can't be read ("),
    ],
)
def test_first_record_that_is_no_label_is_an_example_with_its_place(
    tmp_path: Path, outcomes: Outcomes, value: bytes | None, found: str
) -> None:
    labels, _ = reader(tmp_path, outcomes, format="json", schema=None, value="told")
    good = b'{"event": "a", "told": 1}'
    _, _, bad = labels.rows([good, value, good, b'{"event": "z"}', b"junk"], [3, 4, 5, 6, 7], [10, 29, 30, 31, 32])
    assert bad.number == 3
    expected = f"expected an event ID at `event` and {outcomes.expected} at `told`, found {found}"
    assert bad.example.startswith(f"offset 29 of l/4: {expected}")
    assert bad.example.endswith(". `millstream tail PIPELINE --topic l --from-beginning` prints labels")
    assert len(bad.example) < MAX_EXAMPLE_LENGTH  # the log shows all of it
    assert labels.rows([good], [3], [10])[2] == (0, "")


def test_index_of_a_class_is_a_label_as_a_number_too(tmp_path: Path) -> None:
    labels, _ = reader(tmp_path, Outcomes("multiclass", PETS), format="json", schema=None)
    ids, found, bad = read(labels, [b'{"event": "a", "value": 2}', b'{"event": "b", "value": 3}'])
    assert (ids, found["value"].tolist(), bad) == (["a"], [2.0], 1)
