"""The demo's model on a server: Triton on this machine, with both versions of the model."""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from millstream.consumers.demo.errors import DemoDataError
from millstream.consumers.demo.scene import Scene
from millstream.consumers.model_servers.errors import ServerMissing
from millstream.consumers.model_servers.triton import ONNX_MODEL, Triton, triton_environment

MODEL = "flights-delay"
# Both versions have this one configuration, but version 1 has 4 numbers an event and version 2 has 5. The workers compare the
# other sizes with the model's config.yaml.
CONFIG = f"""\
name: "{MODEL}"
backend: "python"
max_batch_size: 0
version_policy {{ all {{ }} }}
input [
  {{ name: "numbers" data_type: TYPE_FP32 dims: [ -1, -1 ] }},
  {{ name: "route" data_type: TYPE_STRING dims: [ -1, 3 ] }}
]
output [{{ name: "late_probability" data_type: TYPE_FP32 dims: [ -1 ] }}]
instance_group [{{ kind: KIND_CPU count: 1 }}]
"""


def fetch_server(cache: Path, tell: Callable[[str], None], stop: threading.Event) -> Path:
    """The environment of the server, fetched on the first run. `tell` gets a line before that.

    Raises:
        DemoDataError: the workers lack the client of the server.
        ServerMissing: the server can't run here, or can't be fetched.
        StopRequested: `stop` was set.
    """
    if find_spec("tritonclient") is None:
        raise DemoDataError(
            "The workers need the package tritonclient to call a server, and it is not installed. Install Millstream's extra "
            f"`kserve`: {sys.executable} -m pip install 'millstream[demo,kserve]'"
        )
    try:
        return triton_environment(cache / "servers", tell=tell, stop=stop)
    except ServerMissing as error:
        raise ServerMissing(f"{error} Or leave out `--executor kserve`: then the demo needs no server.") from None


@contextmanager
def served(placed: Scene, environment: Path, stop: threading.Event) -> Iterator[Triton]:
    """Move the model of the example to a server, and start it. At the end, end it.

    Raises:
        ServerFailed: the server doesn't start.
        StopRequested: `stop` was set.
    """
    server = Triton(placed.folder / "triton", environment)
    move_model(placed.folder / "models" / MODEL, server.models / MODEL, list(placed.pipelines), server.grpc)
    with server:
        server.start(wait=False)
        server.wait_ready(stop)
        yield server


def move_model(repository: Path, model: Path, versions: list[int], url: str) -> None:
    """Move the ONNX files of these versions from Millstream's repository to the server's.

    Args:
        repository: the model's folder for the workers. Its versions then name the server.
        model: the model's folder for the server.
        versions: which ones.
        url: the server's.
    """
    for version in versions:
        folder, config = model / str(version), repository / str(version) / "config.yaml"
        folder.mkdir(parents=True)
        (repository / str(version) / "model.onnx").rename(folder / "model.onnx")
        shutil.copy(ONNX_MODEL, folder / "model.py")
        mapping = config.read_text(encoding="utf-8")
        config.write_text(f"executor: kserve\nserver: {{urls: [{url!r}]}}\n{mapping}", encoding="utf-8")
    (model / "config.pbtxt").write_text(CONFIG, encoding="utf-8")


def named(server: Triton) -> str:
    """The running server, in words. Raises ServerFailed."""
    return f"Triton {server.version()} at {server.grpc}, on the CPU"


def sum_of_requests(server: Triton) -> str:
    """The running server and what it did, in words. Raises ServerFailed."""
    counts = ", ".join(f"{count:,} for version {version}" for version, count in sorted(server.requests(MODEL).items()))
    return f"on {named(server)}; requests: {counts}"
