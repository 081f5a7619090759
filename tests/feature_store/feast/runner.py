"""Runs commands of Millstream in a process that has Feast's packages, because to import them takes many seconds.

Each line of its input is a JSON list: `["make_shop", FOLDER, ADDRESS]` or the words of a command. It answers each with a line of
JSON: the exit code, the standard output and the standard error.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

from millstream.consumers.cli import main as cli
from tests.feature_store.feast.shop import make_shop


def main() -> None:
    """Answer until the input ends."""
    answers = sys.stdout
    for line in sys.stdin:
        words = json.loads(line)
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            if words[0] == "make_shop":
                make_shop(Path(words[1]), words[2])
                code = 0
            else:
                code = cli.run(words)
        print(json.dumps([code, out.getvalue(), said.getvalue()]), file=answers, flush=True)


if __name__ == "__main__":
    main()
