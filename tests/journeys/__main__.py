"""Runs the journeys and writes their transcripts: python -m tests.journeys [NAME ...]."""

from __future__ import annotations

import importlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.journeys.journey import Journey, free_port

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
RESULTS = Path(__file__).parent / "results"
NAMES = (
    "scikit_learn", "missing_values", "torch_model", "python_model", "nested_events", "shadow", "outage", "wrong_files",
    "dead_letters", "scaling",
)  # fmt: skip
LARGE = {"torch_model": "torch"}  # what a journey needs and is some GB; such a journey runs only if it is named
# As README says for an environment without CUDA, and what the journeys' models are made with.
RUNTIME = (
    "onnxruntime confluent-kafka fastavro httpx2 msgspec numpy prometheus-client pydantic pyyaml rich shtab yyjson"
)
TRAINING = "scikit-learn skl2onnx onnxmltools pandas xgboost-cpu"
COMPARISON = "faust-streaming>=0.15.3,<0.16 cramjam scipy"


def environment(folder: Path, packages: list[str]) -> Path:
    """A fresh virtual environment with the wheel of this checkout and what the named packages add to it."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    install = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *RUNTIME.split(), *TRAINING.split(), *COMPARISON.split(), *packages], check=True)
    # Behind its dependencies, so that pip doesn't report the missing onnxruntime-gpu as an error.
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    return folder / "venv"


def travel(name: str, folder: Path, python: Path, bootstrap: str) -> bool:
    """Run one journey and write its transcript; returns whether it arrived."""
    module = importlib.import_module(f"tests.journeys.{name}")
    folder.mkdir()
    journey = Journey(str(module.__doc__).splitlines()[0].rstrip("."), folder, python, bootstrap, CACHE)
    failure = ""
    try:
        module.travel(journey)
    except Exception as error:  # the other journeys still run; the transcript ends where this one did
        failure = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    finally:
        journey.end()
    RESULTS.mkdir(exist_ok=True)
    result = f"Failed: {failure}" if failure else "Passed"
    (RESULTS / f"{name}.md").write_text(journey.page(result), encoding="utf-8")
    print(f"{name}: {result}, {time.monotonic() - journey.began:.0f} s", flush=True)
    return not failure


def main() -> int:
    """Run the named journeys, or all, on one broker; 1 if one failed."""
    # What a script starts in the background ignores Ctrl-C, and so would the commands of the journeys.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = sys.argv[1:] or [name for name in NAMES if name not in LARGE]
    if unknown := set(names) - set(NAMES):
        print(f"No journey {', '.join(sorted(unknown))}. There are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name, package in LARGE.items():
        if name not in names:
            print(
                f"{name}: Skipped: it needs {package}, which takes some GB. Run it by name: make journeys ARGS={name}",
                flush=True,
            )
    work = Path(tempfile.mkdtemp(prefix="journeys-"))
    port = free_port()
    try:
        python = environment(work, [LARGE[name] for name in names if name in LARGE])
        (work / "broker").mkdir()
        service = Journey("broker", work / "broker", python, "", CACHE)
        broker = service.start(f"millstream broker --port {port} --cache {CACHE}")
        try:
            broker.wait_for(f"127.0.0.1:{port}")
            arrived = [travel(name, work / name, python, f"127.0.0.1:{port}") for name in names]
            return int(not all(arrived))
        finally:
            service.end()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
