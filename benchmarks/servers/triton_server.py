"""Triton, on the CPU, with its python backend: the server inside the package nvidia-pytriton."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environments import python_of
from benchmarks.servers.process import CACHE, HOST, ModelServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUIREMENTS = Path(__file__).parent / "triton"
EXIT_TIMEOUT = 5  # seconds that requests in flight have when it ends
_PATHS = "import sysconfig as s; print(s.get_path('purelib'), s.get_config_var('LIBDIR'), s.get_python_version(), sep=chr(10))"
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
def installed() -> tuple[Path, Path, str]:
    """Its package folder, Python's library folder, and Python's version. Raises LeftOutError."""
    python = python_of("triton", REQUIREMENTS, cache=CACHE)
    site, libraries, version = subprocess.run(
        [str(python), "-c", _PATHS], check=True, capture_output=True, text=True
    ).stdout.split()
    return Path(site), Path(libraries), version


class Triton(ModelServer):
    """See `ModelServer`."""

    def __init__(self, models: Path, *options: str) -> None:
        """Args:
        models: its model repository, see `write_model`.
        options: of its command line.
        """
        super().__init__(models)
        self._options = options

    def command(self) -> Sequence[str]:
        """See `ModelServer.command`."""
        site, _, version = installed()
        triton = site / "pytriton" / "tritonserver"
        backend = self.folder / "backends" / "python"
        if not backend.exists():
            shutil.copytree(triton / "backends" / "python", backend)
            shutil.copy(triton / "python_backend_stubs" / version / "triton_python_backend_stub", backend)
        return [
            str(triton / "bin" / "tritonserver"),
            f"--model-repository={self.models}",
            f"--backend-directory={backend.parent}",
            "--allow-gpu-metrics=false",
            f"--exit-timeout-secs={EXIT_TIMEOUT}",
            *(f"--{kind}-address={HOST}" for kind in ("http", "grpc", "metrics")),
            f"--http-port={self.http_port}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={self.metrics_port}",
            *self._options,
        ]

    def environment(self) -> Mapping[str, str]:
        """See `ModelServer.environment`."""
        site, libraries, _ = installed()
        return {"LD_LIBRARY_PATH": f"{site / 'nvidia_pytriton.libs'}:{libraries}", "TRITON_PY_SITE": str(site)}


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
