"""`millstream options`: lists every option of the pipeline file, or those of a section, from the code that reads them."""

import argparse
import json

from millstream.consumers.errors import WorkerError
from millstream.pipeline.reference import json_schema, options, options_markdown, table_of
from millstream.schemas.wording import meant


def run(args: argparse.Namespace) -> int:
    """Print the options as Markdown, or as a JSON Schema."""
    if args.json_schema:
        if args.name is not None:
            args.parser.error("--json-schema prints the schema of the whole file: leave SECTION out")
        print(json.dumps(json_schema(), indent=2))
        return 0
    if args.name is not None:
        print(_section(args.name), end="")
        return 0
    _, _, page = options_markdown().partition("-->\n")  # the note before it is for who changes the page
    print(page)
    return 0


def _section(name: str) -> str:
    """The table of a section, or of one option. Raises WorkerError: there is none of this name."""
    every = options()
    found = [option for option in every if f"{option.path}.".replace("[]", "").startswith(f"{name}.".replace("[]", ""))]
    if not found:
        sections = dict.fromkeys(option.path.partition(".")[0].removesuffix("[]") for option in every)
        near = meant(name, sections)
        raise WorkerError(
            f"{name}: the pipeline file has no such section or option.{near} `millstream options` lists all."
        )
    return table_of(found)
