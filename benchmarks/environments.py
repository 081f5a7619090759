"""Each peer's own environment under .cache/bench. It is installed or built once, from pinned versions."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import LeftOutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks" / "peers"
CACHE = ROOT / ".cache" / "bench"
INSTALL_TIMEOUT = 1200  # seconds
LAST_LINES = 5  # lines of a failed command's output that the reason shows


def python_of(peer: str, folder: Path | None = None, *, cache: Path = CACHE) -> Path:
    """The Python of the environment for `requirements.txt` in the folder, `peers/<peer>` by default. Raises LeftOutError.

    Args:
        peer: name of the environment.
        folder: has `requirements.txt`.
        cache: where the environment is made.
    """
    requirements = (folder or PEERS / peer) / "requirements.txt"

    def install(folder: Path) -> None:
        uv = Path(sys.executable).with_name("uv")
        if not uv.exists():
            raise LeftOutError("uv is not installed beside Python (it comes with the development requirements)")
        python = folder / "bin" / "python"
        _run([str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], ROOT)
        options = ["--quiet", "--no-deps", "--require-hashes", "--python", str(python)]
        _run([str(uv), "pip", "install", *options, "-r", str(requirements)], ROOT)

    return _once(peer, [requirements], platform.python_version(), install, cache) / "bin" / "python"


def java_of(peer: str) -> list[str]:
    """The command that runs the peer's class `Peer`, compiled with the libraries of its pom. Raises LeftOutError."""
    sources = sorted((PEERS / peer / "src").glob("*.java"))
    pom = PEERS / peer / "pom.xml"
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise LeftOutError(f"{tool} is not installed")

    def build(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(pom, folder / "pom.xml")
        _run(["mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=libs"], folder)
        _run(["javac", "-d", "classes", "-cp", "libs/*", *map(str, sources)], folder)

    folder = _once(peer, [pom, *sources], "", build)
    options = ["-XX:+UseParallelGC", "-Xms256m", "-Xmx512m"]
    return ["java", *options, "-cp", f"{folder}/classes:{folder}/libs/*", "Peer"]


def rust_of(peer: str) -> list[str]:
    """The command that runs the peer, built from its sources, with ONNX Runtime's library. Raises LeftOutError."""
    if shutil.which("cargo") is None:
        raise LeftOutError("cargo is not installed")
    sources = [PEERS / peer / "Cargo.toml", *sorted((PEERS / peer / "src").glob("*.rs"))]

    def build(folder: Path) -> None:
        # Cargo writes its lock file next to the sources.
        shutil.copytree(PEERS / peer, folder / "source", dirs_exist_ok=True)
        _run(["cargo", "build", "--quiet", "--release", "--target-dir", str(folder)], folder / "source")

    return [str(_once(peer, sources, "", build) / "release" / "rust-peer")]


def onnxruntime_library() -> str:
    """The native library of the Python package here. Raises LeftOutError."""
    package = find_spec("onnxruntime")
    places = list(package.submodule_search_locations or []) if package else []
    found = [file for place in places for file in Path(place).glob("capi/libonnxruntime.so*")]
    if not found:
        raise LeftOutError("onnxruntime's Python package has no libonnxruntime.so here")
    return str(found[0])


def pins() -> dict[str, str]:
    """The framework or client that each peer tests, which its folder pins first: peer -> name and version."""
    found: dict[str, str] = {}
    for folder in sorted(PEERS.iterdir()):
        for name, pattern in _PINS:
            if (folder / name).exists() and (match := re.search(pattern, (folder / name).read_text())):
                found[folder.name] = f"{match[1]} {match[2]}"
    return found


_PINS = (
    ("requirements.in", r"^([\w-]+)==(\S+)"),
    ("pom.xml", r"<artifactId>(kafka-clients)</artifactId>\s*<version>(.+?)</version>"),
    ("Cargo.toml", r'(rdkafka) = \{ version = "=([^"]+)"'),
)


def _once(peer: str, inputs: Sequence[Path], kind: str, install: Callable[[Path], None], cache: Path = CACHE) -> Path:
    """The peer's folder; installed again if its inputs changed."""
    folder = cache / peer
    digest = hashlib.sha256(kind.encode() + b"".join(file.read_bytes() for file in inputs)).hexdigest()
    mark = folder / "installed"
    if not mark.exists() or mark.read_text() != digest:
        print(f"Installing {peer} into {folder.relative_to(ROOT)} (once) ...", file=sys.stderr)
        mark.unlink(missing_ok=True)
        install(folder)
        mark.write_text(digest)
    return folder


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise LeftOutError(f"{Path(command[0]).name} did not end within {INSTALL_TIMEOUT} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-LAST_LINES:]
        raise LeftOutError(f"{Path(command[0]).name} ended with status {done.returncode}: {' / '.join(lines)[:500]}")
