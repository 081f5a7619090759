"""Triton as `millstream demo` runs it, from the cache of the tests and benchmarks, with models whose code is given as text."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from benchmarks.errors import LeftOutError
from benchmarks.servers import CACHE
from millstream.consumers.model_servers import triton
from millstream.consumers.model_servers.errors import ServerMissing

_MODEL_HEAD = """
import os, site, time
site.addsitedir(os.environ["TRITON_PY_SITE"])  # the backend ignores PYTHONPATH
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb


def tensor(request, name):
    return pb.get_input_tensor_by_name(request, name).as_numpy()


def answer(**outputs):
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in outputs.items()])


def refused(text):
    return pb.InferenceResponse(error=pb.TritonError(text, pb.TritonError.INVALID_ARG))
"""


@cache
def installed() -> Path:
    """Its environment. Raises LeftOutError."""
    try:
        return triton.triton_environment(CACHE, tell=lambda line: print(line, file=sys.stderr))
    except ServerMissing as error:
        raise LeftOutError(str(error)) from None


class Triton(triton.Triton):
    """See `ModelServer`."""

    def __init__(self, models: Path, *options: str) -> None:
        """Args:
        models: its model repository, see `write_model`.
        options: of its command line.

        Raises LeftOutError.
        """
        super().__init__(models, installed(), *options)


def write_model(models: Path, name: str, config: str, body: str, *, version: int = 1) -> Path:
    """Write a model of the python backend. Returns the version's folder.

    Args:
        models: the server's model repository.
        name: of the model.
        config: of its config.pbtxt, without name and backend.
        body: of `def respond(request)`, which returns `answer(name=array)` or `refused(text)`; `np`, `time` and
            `tensor(request, name)` are there, and the version's folder as `FOLDER`.
        version: its number.
    """
    folder = models / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    (folder / "model.py").write_text(
        f"{_MODEL_HEAD}\n\nFOLDER = Path({str(folder)!r})\n\n\ndef respond(request):\n{lines}\n\n"
        "class TritonPythonModel:\n    def execute(self, requests):\n"
        "        return [respond(request) for request in requests]\n",
        encoding="utf-8",
    )
    (folder.parent / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}\n', encoding="utf-8")
    return folder
