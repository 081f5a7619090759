"""`millstream options`: all options of the pipeline file, or those of a section."""

import pytest

from millstream.consumers.cli import main as cli
from millstream.pipeline.reference import options


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("name", ["name"]),
        ("labels", [option.path for option in options() if option.path.startswith("labels.")]),
        ("shadows", [option.path for option in options() if option.path.startswith("shadows[].")]),
        ("shadows[]", [option.path for option in options() if option.path.startswith("shadows[].")]),
        ("kafka.bootstrap", ["kafka.bootstrap"]),
    ],
)
def test_options_of_a_section_are_printed_alone(
    name: str, paths: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["options", name]) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| option |")
    assert rule.startswith("|---|")
    assert [row.split("`")[1] for row in rows] == paths
    assert paths


def test_section_that_is_not_there_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["options", "lables"]) == 1
    assert capsys.readouterr().err == (
        "lables: the pipeline file has no such section or option. Did you mean `labels`? `millstream options` lists all.\n"
    )


def test_schema_is_of_the_whole_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.run(["options", "labels", "--json-schema"])
    assert end.value.code == 2
    assert "leave SECTION out" in capsys.readouterr().err
