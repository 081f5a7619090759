import re
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
        assert [target for target in targets if not _is_there(page, target)] == []


def _is_there(page: str, target: str) -> bool:
    """Whether the file is there, and where the link names a heading, the heading in it."""
    file, _, anchor = target.partition("#")
    found = DOCS / (file or page)
    if not found.exists() or not anchor:
        return found.exists()
    headings = [line.lstrip("#").strip() for line in found.read_text("utf-8").splitlines() if line.startswith("#")]
    return anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
