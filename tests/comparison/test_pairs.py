"""Which pairs are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millstream.consumers.comparison.errors import ComparisonError
from millstream.consumers.comparison.pairs import KnownPairs
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import Comparisons, Pair, Variant
from tests.pipeline.pipeline_files import SMALL

PRIMARY, SHADOW = Variant("m", 1, "primary"), Variant("m", 2)


def pipeline(
    folder: Path, model: str, shadows: str = "[{version: 2}, {version: 7, model: other, name: third}]"
) -> Pipeline:
    text = SMALL.replace("model:\n  name: m\n", f"model: {model}\nshadows: {shadows}\n")
    (folder / "pipeline.yaml").write_text(text)
    return load_pipeline(folder / "pipeline.yaml", {})


@pytest.mark.parametrize(
    ("pair", "known"),
    [
        (Pair(PRIMARY, SHADOW), True),
        (Pair(PRIMARY, Variant("other", 7, "third")), True),
        (Pair(PRIMARY, Variant("other", 7, "shadow")), False),
        (Pair(PRIMARY, Variant("m", 3)), False),
        (Pair(PRIMARY, PRIMARY), False),
        (Pair(Variant("m", 2, "primary"), SHADOW), False),
        (Pair(Variant("m", 1, "shadow"), SHADOW), False),
        (Pair(Variant("other", 1, "primary"), SHADOW), False),
    ],
)
def test_pairs_are_those_that_the_file_names(tmp_path: Path, pair: Pair, known: bool) -> None:
    assert (pair in KnownPairs(pipeline(tmp_path, "{name: m, version: 1}"))) is known


def test_refusal_names_the_versions_and_those_of_the_file(tmp_path: Path) -> None:
    known = KnownPairs(pipeline(tmp_path, "{name: m, version: 1}"))
    assert known.refusal(Pair(Variant("m", 1, "primary"), Variant("m", 3, "forest"))) == (
        "m version 1 with the shadow m version 3 (forest); the pipeline file names m version 1 with m version 2, other version 7 "
        "(third). If these versions were compared before a change of the file, nothing is to be done"
    )


def test_primary_without_a_version_is_each_in_the_repository(tmp_path: Path) -> None:
    (tmp_path / "models" / "m" / "4").mkdir(parents=True)
    known = KnownPairs(pipeline(tmp_path, "{name: m}"))
    versions = [version for version in range(-1, 10) if Pair(Variant("m", version, "primary"), SHADOW) in known]
    assert versions == [4]
    (tmp_path / "models" / "m" / "5").mkdir()
    assert Pair(Variant("m", 5, "primary"), SHADOW) in known


def test_each_version_in_the_repository_is_a_primary_of_a_rollout(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        (tmp_path / "models" / "m" / str(version)).mkdir(parents=True)
    known = KnownPairs(pipeline(tmp_path, "{name: m, version: 1}\nrollout: {strategy: manual}"))
    versions = [version for version in range(5) if Pair(Variant("m", version, "primary"), SHADOW) in known]
    assert versions == [1, 2, 3]
    assert "names m version 1 (with its rollout, each version in the repository) with m version 2, " in known.refusal(
        Pair(Variant("m", 4, "primary"), SHADOW)
    )


def test_job_of_a_rollout_without_the_repository_knows_the_version_of_the_file(tmp_path: Path) -> None:
    known = KnownPairs(pipeline(tmp_path, "{name: m, version: 1}\nrollout: {strategy: manual}"))
    versions = [version for version in range(5) if Pair(Variant("m", version, "primary"), SHADOW) in known]
    assert versions == [1]


def test_primary_whose_version_is_nowhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(ComparisonError, match=r"pipeline\.yaml:\d+: model: expected the primary's `version`"):
        KnownPairs(pipeline(tmp_path, "{name: m}"))


def test_comparisons_of_known_pairs_are_kept_with_their_values() -> None:
    pairs = [Pair(PRIMARY, Variant("m", number)) for number in range(4)]
    pair = np.array([0, 1, 2, 3, 1, 0], np.uint16)
    numbers = np.arange(6)
    latency = np.arange(6, dtype=np.float64)
    outputs = [{"p": float(number)} for number in numbers]
    ids = [str(number) for number in numbers]
    given = Comparisons(numbers, ids, numbers, pairs, pair, outputs, [*outputs], latency, 2 * latency)
    kept, others = given.of_pairs({pairs[1], pairs[3]})
    assert (kept.ids, kept.rows.tolist(), kept.event_times.tolist()) == (["1", "3", "4"], [1, 3, 4], [1, 3, 4])
    assert [kept.pairs[place] for place in kept.pair] == [pairs[1], pairs[3], pairs[1]]
    assert kept.primary == kept.shadow == [outputs[1], outputs[3], outputs[4]]
    assert (kept.primary_ms.tolist(), kept.shadow_ms.tolist()) == ([1, 3, 4], [2, 6, 8])
    assert others == [pairs[0], pairs[2], pairs[0]]
    assert given.of_pairs(set(pairs)) == (given, [])
    none, all_others = given.of_pairs(set())
    assert (none.ids, none.pairs, len(all_others)) == ([], [], 6)
