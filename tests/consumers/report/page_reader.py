"""Reads a report's page: its text, its tags, and whether it loads anything."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}
SHAPES = {"polyline", "polygon", "circle", "rect", "line", "path"}


class PageReader(HTMLParser):
    """Parses a page; raises AssertionError if a tag isn't closed, or if the page loads or runs anything."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.headings: list[str] = []
        self.plots: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []
        lower = page.lower()
        assert "http:" not in lower.replace("http://www.w3.org", "")
        assert "https:" not in lower
        assert "url(" not in lower
        assert "@import" not in lower

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "iframe", "img", "object", "embed"}
        for name, value in attrs:
            assert name not in {"src", "href", "xlink:href"}
            assert not name.startswith("on")
            assert "nan" not in (value or "").lower() or tag not in SHAPES, (tag, value)
            if name == "aria-label":
                self.plots.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] != "style":
            self.text.append(data.strip())
        if self.open[-1:] in (["h1"], ["h2"], ["h3"]):
            self.headings.append(data)
