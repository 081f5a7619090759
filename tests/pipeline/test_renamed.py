"""Options under their former names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.renamed import RENAMED

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
name: p
kafka: {{bootstrap: "127.0.0.1:9092"}}
input: {{topics: [in], schema: in-v1, format: json}}
output: {{topic: out}}
dead_letters: {{topic: dead}}
model: {{repository: ., name: m, version: 1{model}}}
limits: {{drain_timeout: 10s{limits}}}
shadows: [{{version: 2, name: a}}, {{version: 3, name: b{shadow}}}]
"""


def written(folder: Path, model: str = "", limits: str = "", shadow: str = "") -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.format(model=model, limits=limits, shadow=shadow))
    return file


def test_option_under_its_former_name_works_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = written(
        tmp_path,
        ", in_flight: 3",
        ", held_events: 900, held_bytes: 64MiB",
        ", share: 0.25, detached: true, budget: 0.3",
    )
    with caplog.at_level(logging.WARNING):
        pipeline = load_pipeline(file, {})
    assert pipeline.model.concurrent_batches == 3
    assert (pipeline.limits.in_flight_events, pipeline.limits.in_flight_bytes) == (900, 64 << 20)
    shadow = pipeline.shadows[1]
    assert (shadow.sample_rate, shadow.dedicated, shadow.max_load) == (0.25, True, 0.3)
    assert "line 7: limits.held_events is now limits.in_flight_events" in caplog.text
    assert "line 8: shadows[1].share is now shadows[1].sample_rate" in caplog.text
    assert len(caplog.records) == len(RENAMED)


def test_present_names_give_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load_pipeline(written(tmp_path, ", concurrent_batches: 3", ", in_flight_events: 900"), {})
    assert caplog.text == ""


def test_wrong_value_under_a_former_name_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r":7: limits\.in_flight_events"):
        load_pipeline(written(tmp_path, limits=", held_events: none"), {})


def test_option_under_both_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="expected one of held_events and in_flight_events, found both"):
        load_pipeline(written(tmp_path, limits=", held_events: 900, in_flight_events: 600"), {})


@pytest.mark.parametrize(
    ("shadow", "said"),
    [
        (", share: 2", r":8: shadows\[1\]\.sample_rate: expected at most 1"),
        (", budget: 0.3, max_load: 0.3", r":8: shadows\[1\]\.budget: expected one of budget and max_load, found both"),
    ],
)
def test_what_is_wrong_under_a_shadows_former_name_is_told_with_its_line(
    tmp_path: Path, shadow: str, said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        load_pipeline(written(tmp_path, shadow=shadow), {})


def test_action_for_each_reason_is_taken_as_lists_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path)
    file.write_text(
        file.read_text() + "on_error: {unfit: stop, expired: skip, crashed: dead_letter, undecodable: stop}\n"
    )
    with caplog.at_level(logging.WARNING):
        on_error = load_pipeline(file, {}).on_error
    assert (on_error.stop, on_error.skip) == (("undecodable", "unfit"), ("expired",))
    assert "line 9: on_error lists the reasons" in caplog.text
    assert "Write on_error: {stop: [undecodable, unfit], skip: [expired]}" in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("unfit: skip", ":9: on_error.unfit: unknown key"),
        ("unfit: ignore", ":9: on_error.unfit: unknown key"),
        ("stop: [crashed], unfit: stop", ":9: on_error.unfit: unknown key"),
    ],
)
def test_former_action_that_is_none_is_told_with_its_line(tmp_path: Path, options: str, said: str) -> None:
    file = written(tmp_path)
    file.write_text(f"{file.read_text()}on_error: {{{options}}}\n")
    with pytest.raises(PipelineError, match=said):
        load_pipeline(file, {})
