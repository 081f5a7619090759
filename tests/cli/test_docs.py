"""`millstream docs` and `millstream dashboards`: what a user without a checkout can read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from millstream.consumers.cli import main as cli
from millstream.consumers.cli.docs import page, sections
from millstream.consumers.errors import WorkerError
from millstream.consumers.shipped import pages

ROOT = Path(__file__).parents[2]
FOLDERS = ("consumers", "inference", "pipeline", "schemas", "topics")
SOURCES = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]


def test_list_names_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["docs"]) == 0
    said = capsys.readouterr().out
    assert {file.stem for file in (ROOT / "docs").glob("*.md")} == set(pages())
    assert all(re.search(rf"^  {name} +\S", said, re.MULTILINE) for name in pages())
    titles = [re.match(r"  [\w-]+ +", line) for line in said.splitlines() if line.startswith("  ")]
    assert len({found.end() for found in titles if found is not None}) == 1  # the titles are in one column


@pytest.mark.parametrize("name", ["models", "models.md", "docs/models.md"])
def test_page_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert cli.run(["docs", name]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "models.md").read_text()


def test_section_is_printed_alone() -> None:
    text = page("runbook#MillstreamDown")
    assert text.startswith("## MillstreamDown\n")
    assert text.count("\n## ") == 0


def test_heading_inside_of_code_is_no_section() -> None:
    assert list(sections("# A b\n```\n# no\n```\n## `c`, d\n")) == ["a-b", "c-d"]


@pytest.mark.parametrize(("name", "meant"), [("modles", "models"), ("models#typs", "types")])
def test_page_that_is_not_there_names_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(WorkerError, match=rf"^{name}: .*\(did you mean {meant}\?\)"):
        page(name)


def test_dashboards_and_rules_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "monitoring"
    assert cli.run(["dashboards", "--output", str(folder)]) == 0
    assert len(list((folder / "grafana" / "dashboards").glob("*.json"))) == 4
    assert yaml.safe_load((folder / "prometheus" / "alerts.yml").read_text())["groups"]
    assert "rule_files" in capsys.readouterr().out
    assert cli.run(["dashboards", "--output", str(folder)]) == 1
    assert "expected a new or empty folder" in capsys.readouterr().err


def texts(file: Path) -> Iterator[str]:
    """The strings of a file, but for docstrings: what its users may read."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_messages_name_pages_by_the_command_that_prints_them() -> None:
    said = {file: "\n".join(texts(file)) for file in SOURCES}
    assert {file for file, text in said.items() if re.search(r"\bdocs/[a-z-]+\.md", text)} == set()
    named = {name for text in said.values() for name in re.findall(r"millstream docs ([a-z][a-z-]*(?:#[\w-]+)?)", text)}
    assert len(named) > 3
    assert all(page(name) for name in named)
