"""`millstream docs`: lists and prints the pages of the documentation, which come with Millstream."""

import argparse
import re
import sys
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from millstream.consumers.errors import WorkerError
from millstream.consumers.shipped import pages, pages_folder

HEADING = re.compile(r"(#+) +(.+)")
HEAD = """Pages of the documentation. `millstream docs PAGE` prints one, and `millstream docs PAGE#SECTION` a section of it.
They lie in {folder}.
From there, links to source files lead to the installed code. Only tests/, benchmarks/ and examples/ need a checkout.
"""


def run(args: argparse.Namespace) -> int:
    """List the pages, or print one: as Markdown, which a terminal shows formatted."""
    if args.page is None:
        print(HEAD.format(folder=pages_folder()))
        width = max(map(len, pages()))
        for name in pages():
            print(f"  {name:<{width}}  {title(page(name))}")
        return 0
    text = page(args.page)
    if sys.stdout.isatty():
        Console().print(Markdown(text, hyperlinks=False))
    else:
        print(text, end="")
    return 0


def page(wanted: str) -> str:
    """The Markdown of `PAGE` or `PAGE#SECTION`; PAGE may also be written as a file, `docs/PAGE.md`.

    Raises:
        WorkerError: there is no such page, or no such section on it.
    """
    place, _, section = wanted.partition("#")
    name = Path(place).name.removesuffix(".md")
    if name not in pages():
        raise WorkerError(f"{wanted}: there is no such page{_meant(name, pages())}. `millstream docs` lists all pages.")
    text = (pages_folder() / f"{name}.md").read_text(encoding="utf-8")
    if not section:
        return text
    found = sections(text)
    if section.lower() not in found:
        raise WorkerError(
            f"{wanted}: the page {name} has no such section{_meant(section.lower(), list(found))}. "
            f"`millstream docs {name}` prints the page."
        )
    return found[section.lower()]


def sections(text: str) -> dict[str, str]:
    """Each section by the anchor of its heading, as links name it. A section includes those below it."""
    lines = text.splitlines(keepends=True)
    headings: list[tuple[int, int, str]] = []  # line, level, heading
    code = False
    for number, line in enumerate(lines):
        code ^= line.startswith("```")
        if not code and (heading := HEADING.match(line)) is not None:
            headings.append((number, len(heading[1]), heading[2].strip()))
    ends = [
        next((line for line, level, _ in headings[at + 1 :] if level <= own), len(lines))
        for at, (_, own, _) in enumerate(headings)
    ]
    return {anchor(heading): "".join(lines[start:end]) for (start, _, heading), end in zip(headings, ends, strict=True)}


def anchor(heading: str) -> str:
    """A heading's anchor, as code hosts make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def title(text: str) -> str:
    """A page's first heading, without marks."""
    return next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ").replace("`", "")


def _meant(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
