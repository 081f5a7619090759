"""Triton, on the CPU, with its python backend: the server inside the package nvidia-pytriton."""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.consumers.model_servers.environment import Packages, environment
from millstream.consumers.model_servers.errors import ServerMissing
from millstream.consumers.model_servers.process import HOST, ModelServer

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

PACKAGES = Packages(
    name="triton",
    title="Triton 2.51.0 with ONNX Runtime",
    requirements=Path(__file__).parent / "requirements" / "triton.txt",
    download="98 MB",
    installed="300 MB",
)
ONNX_MODEL = Path(__file__).with_name("onnx_model.py")
"""The code of a model that has a file model.onnx. Only Triton imports it."""
PYTHONS = ((3, 11), (3, 12))  # of those that Millstream runs on, the ones with a wheel of numpy 1
GLIBC = (2, 35)  # of the wheel
EXIT_TIMEOUT = 5  # seconds that requests in flight have when it ends


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides whether Triton can run."""

    system: str  # such as linux
    processor: str  # such as x86_64
    python: tuple[int, int]
    glibc: tuple[int, ...]  # empty: another C library
    libpython: bool  # whether Python's shared library is there

    @classmethod
    def here(cls) -> Machine:
        """This one."""
        name, version = platform.libc_ver()
        return cls(
            system=sys.platform,
            processor=platform.machine(),
            python=sys.version_info[:2],
            glibc=tuple(int(part) for part in version.split(".")) if name == "glibc" else (),
            libpython=_libpython().exists() or find_library(f"python{sysconfig.get_python_version()}") is not None,
        )


def lacks(machine: Machine) -> str | None:
    """What the machine lacks to run Triton, as a sentence's end; None if it lacks nothing."""
    if (machine.system, machine.processor) != ("linux", "x86_64"):
        return f"it needs Linux on x86_64, found {machine.system} on {machine.processor}"
    if machine.glibc < GLIBC:
        found = ".".join(map(str, machine.glibc)) or "another C library"
        return f"it needs glibc {GLIBC[0]}.{GLIBC[1]} or later, found {found}"
    if machine.python not in PYTHONS:
        found = ".".join(map(str, machine.python))
        return f"it needs Python 3.11 or 3.12, because its models in Python need NumPy 1; found Python {found}"
    if not machine.libpython:
        return f"it needs Python's shared library, and this Python has no {_libpython().name}"
    return None


def _libpython() -> Path:
    return Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib") / f"libpython{sysconfig.get_python_version()}.so.1.0"


def triton_environment(
    cache: Path, *, tell: Callable[[str], None] = lambda _: None, stop: threading.Event | None = None
) -> Path:
    """The environment with Triton; fetched into the folder `cache` if it is missing there. See `environment`.

    Raises:
        ServerMissing: it can't run here, or can't be fetched.
        StopRequested: `stop` was set.
    """
    if (missing := lacks(Machine.here())) is not None:
        raise ServerMissing(f"Triton can't run here: {missing}.")
    return environment(PACKAGES, cache, tell=tell, stop=stop)


class Triton(ModelServer):
    """See `ModelServer`."""

    def __init__(self, models: Path, environment: Path, *options: str) -> None:
        """Args:
        models: its model repository.
        environment: see `triton_environment`.
        options: of its command line.
        """
        super().__init__(models)
        base = {"base": str(environment), "platbase": str(environment)}
        self._site = Path(sysconfig.get_path("purelib", "venv", vars=base))
        self._options = options

    def command(self) -> Sequence[str]:
        """See `ModelServer.command`."""
        triton = self._site / "pytriton" / "tritonserver"
        backend = self.folder / "backends" / "python"
        if not backend.exists():
            stub = triton / "python_backend_stubs" / sysconfig.get_python_version() / "triton_python_backend_stub"
            shutil.copytree(triton / "backends" / "python", backend)
            shutil.copy(stub, backend)
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
        libraries = f"{self._site / 'nvidia_pytriton.libs'}:{_libpython().parent}"
        return {"LD_LIBRARY_PATH": libraries, "TRITON_PY_SITE": str(self._site)}

    def version(self) -> str:
        """The version that the running server reports. Raises ServerFailed."""
        return str(self.get("/v2")["version"])

    def requests(self, model: str) -> dict[int, int]:
        """Version of the model -> how many requests it has run, also those that it refused. Raises ServerFailed."""
        stats = self.get(f"/v2/models/{model}/stats")["model_stats"]
        return {int(each["version"]): int(each["inference_stats"]["success"]["count"]) for each in stats}
