from pathlib import Path

from millstream.consumers.comparison.metrics import metrics_markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_page_lists_every_metric() -> None:
    assert (DOCS / "comparison.md").read_text("utf-8").endswith(metrics_markdown())


def test_files_that_the_pages_link_to_exist() -> None:
    for page in ("comparison.md", "shadows.md"):
        text = (DOCS / page).read_text("utf-8")
        targets = [part.split(")")[0] for part in text.split("](")[1:]]
        assert targets
        assert [target for target in targets if not (DOCS / target).exists()] == []
