"""The table of `millstream tail`: what a person sees of a record."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from millstream.consumers.cli.record_table import RecordTable, summary

RECORD = {"topic": "t", "partition": 3, "offset": 17, "timestamp": "2013-09-01T09:08:00.000Z", "key": "N57869"}
PREDICTION = {"event_id": "e1", "model": "m", "version": 1, "outputs": {"late": 0.20105096697807312, "label": "no"}}


def printed(*records: dict[str, Any], topics: tuple[str, ...] = ("t",), width: int = 120) -> list[str]:
    out = StringIO()
    table = RecordTable(topics, Console(file=out, width=width, highlight=False))
    for record in records:
        table.show({**RECORD, **record})
    return out.getvalue().splitlines()


def test_heading_comes_once_and_each_record_is_one_line() -> None:
    heading, *lines = printed({"value": PREDICTION}, {"value": None, "key": None, "timestamp": None})
    assert heading.split() == ["time", "(UTC)", "position", "key", "value"]
    assert lines[0].split() == ["2013-09-01", "09:08:00.000", "3@17", "N57869", "e1", "late=0.201051", "label=no"]
    assert lines[1].split() == ["-", "3@17", "null", "null"]
    assert heading.index("value") == lines[0].index("e1")


def test_line_is_cut_at_the_width_of_the_terminal() -> None:
    _, line = printed({"value": {"text": "x" * 500}}, width=110)
    assert len(line) == 110
    assert line.endswith("\N{HORIZONTAL ELLIPSIS}")


def test_value_has_a_line_of_its_own_in_a_narrow_terminal() -> None:
    outputs = {"label": 1, "probabilities": [0.20105096697807312, 0.7989490330219269]}
    heading, below, line, value = printed({"value": {**PREDICTION, "outputs": outputs}}, width=80)
    assert (heading.split(), below.split()) == (["time", "(UTC)", "position", "key"], ["value"])
    assert line.split() == ["2013-09-01", "09:08:00.000", "3@17", "N57869"]
    assert value == "    e1  label=1  probabilities=[0.201051, 0.798949]"


def test_topic_is_named_if_there_are_several() -> None:
    _, line = printed({"value": 1, "topic": "late"}, topics=("late", "early"))
    assert line.split()[2:] == ["late", "3@17", "N57869", "1"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"value": {"reason": "unfit", "error": "too long", "topic": "t"}}, "unfit: too long"),
        ({"value": {"base64": "AA=="}, "error": "no schema 9"}, "can't be decoded: no schema 9"),
        ({"value": {"id": "a", "x": [1, 2]}}, "id=a  x=[1, 2]"),
        ({"value": {"event_id": "e", "outputs": {"y": 1}, "event": {"site": "a"}}}, "e  y=1  site=a"),
        ({"value": {"event_id": "e", "outputs": {"y": 1}, "event": None}}, "e  y=1"),
        ({"value": [1]}, "[1]"),
        ({"value": {"a": "\x1b[31m\n"}}, "a=\\x1b[31m\\n"),
    ],
)
def test_summary_shows_what_matters_and_acts_on_no_terminal(record: dict[str, Any], said: str) -> None:
    assert summary(record) == said
