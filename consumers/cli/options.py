"""`millstream options`: lists every option of the pipeline file, from the code that reads them."""

import argparse
import json

from millstream.pipeline.reference import json_schema, options_markdown


def run(args: argparse.Namespace) -> int:
    """Print the options as Markdown, or as a JSON Schema."""
    _, _, page = options_markdown().partition("-->\n")  # the note before it is for who changes the page
    print(json.dumps(json_schema(), indent=2) if args.json_schema else page)
    return 0
