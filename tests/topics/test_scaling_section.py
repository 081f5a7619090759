from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.pipeline_files import SMALL, lines_of, load

if TYPE_CHECKING:
    from pathlib import Path


def test_workers_follow_the_load_where_the_file_says_nothing(tmp_path: Path) -> None:
    scaling = load(tmp_path, SMALL).scaling
    assert (scaling.min, scaling.max, scaling.catch_up, scaling.scale_down_after) == (1, None, 30, 120)


def test_bounds_and_targets_are_read(tmp_path: Path) -> None:
    scaling = load(tmp_path, SMALL + "scaling: {min: 2, max: 8, catch_up: 10s, scale_down_after: 1m}\n").scaling
    assert (scaling.min, scaling.max, scaling.catch_up, scaling.scale_down_after) == (2, 8, 10, 60)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{min: 3, max: 2}", "scaling.max: scaling.max (2) must be at least scaling.min (3)."),
        ("{min: 0}", "scaling.min: "),
        ("{max: many}", "scaling.max: "),
        ("{catch_up: 0s}", "scaling.catch_up: "),
        ("{catch_up: 30}", "without a unit"),
        ("{workers: 3}", "scaling.workers: "),
    ],
)
def test_what_can_not_be_is_told_with_its_line(tmp_path: Path, section: str, said: str) -> None:
    [line] = lines_of(tmp_path, f"{SMALL}scaling: {section}\n")
    assert line.startswith(f"{SMALL.count(chr(10)) + 1}: ")
    assert said in line
