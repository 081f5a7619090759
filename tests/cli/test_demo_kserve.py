"""`millstream demo --executor kserve`: a real Triton, which the demo starts."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.clients import wait_until
from tests.cli.command import ENVIRON
from tests.inference.executors.remote_models import missing_for_triton

ROOT = Path(__file__).parents[2]
# Not the installed command: the test is about this checkout.
COMMAND = [sys.executable, "-P", "-m", "millstream", "demo", "--plain", "--cache", str(ROOT / ".cache")]


@pytest.fixture(autouse=True)
def _triton() -> None:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)


def environ(folder: Path) -> dict[str, str]:
    return {**ENVIRON, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}


def processes(folder: Path) -> list[str]:
    """The command lines that name a file in the folder: those of the demo's workers, of Triton and of what Triton starts."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        if str(folder) in line:
            found.append(line)
    return found


@contextmanager
def running(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The demo, far from its end; its temporary files are in `folder`."""
    command = [*COMMAND, "--executor", "kserve", "--events", "1000000"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ(folder))
    with demo:
        try:
            yield demo
        finally:
            demo.kill()


def wait_for_line(demo: "subprocess.Popen[str]", part: str) -> None:
    assert demo.stdout is not None
    assert demo.stderr is not None
    if not any(part in line for line in demo.stdout):
        pytest.fail(f"the demo ended early: {demo.stderr.read()}")


@pytest.mark.full
def test_events_add_up_and_rank_as_in_the_workers(tmp_path: Path) -> None:
    found = {}
    for executor in ("onnx", "kserve"):
        command = [*COMMAND, "--executor", executor, "--events", "2000"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environ(tmp_path), check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        found[executor] = done.stdout
    served = found["kserve"]
    assert "Version 1  1,992 predictions + 8 dead letters = 2,000 of 2,000 events: adds up\n" in served
    assert "Version 2  1,990 predictions + 10 dead letters = 2,000 of 2,000 events: adds up\n" in served
    assert re.search(r"The model runs on a server: Triton 2\.51\.0 at grpc://127\.0\.0\.1:\d+, on the CPU", served)
    assert re.search(r"requests: [1-9]\d* for version 1, [1-9]\d* for version 2\n", served)
    assert "Triton" not in found["onnx"]
    areas = {executor: re.findall(r"AUC \d\.\d+ against .+", out) for executor, out in found.items()}
    assert len(areas["onnx"]) == 2
    assert areas["kserve"] == areas["onnx"]
    assert processes(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "Starting ...",
        pytest.param("The model runs on a server", marks=pytest.mark.full),
        pytest.param("lag", marks=pytest.mark.full),
    ],
)
def test_signal_leaves_no_server(tmp_path: Path, line: str) -> None:
    """While Triton starts, while the workers start, and while events come."""
    with running(tmp_path) as demo:
        wait_for_line(demo, line)
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=90)
        assert (demo.returncode, err) == (0, "")
        assert re.search(r"= ([\d,]+) of \1 events: adds up|Stopped before the first event", out)
        assert processes(tmp_path) == []
        assert not [*tmp_path.glob("millstream-demo-*"), *tmp_path.glob("millstream-server-*")]


@pytest.mark.full
def test_killed_demo_takes_the_server_along(tmp_path: Path) -> None:
    with running(tmp_path) as demo:
        wait_for_line(demo, "lag")
        assert any("triton_python_backend_stub" in line for line in processes(tmp_path))
        demo.kill()
        demo.wait()
        wait_until(lambda: processes(tmp_path) == [], 20, "the end of all processes")


@pytest.mark.full
def test_server_that_dies_ends_the_demo_with_its_log(tmp_path: Path) -> None:
    with running(tmp_path) as demo:
        wait_for_line(demo, "lag")
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            if file.exists() and b"bin/tritonserver" in (line := file.read_bytes()) and str(tmp_path).encode() in line:
                os.kill(int(file.parent.name), signal.SIGKILL)
        _, err = demo.communicate(timeout=90)
        assert demo.returncode == 1
        assert "The server Triton ended with status -9. Its log ends:\n" in err
        assert "Traceback" not in err
        assert processes(tmp_path) == []


@pytest.mark.parametrize("other", [["--shadow"], ["--load", "spike"], ["--reload"]])
def test_other_demos_have_no_server(other: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "--executor", "kserve", *other], capture_output=True, text=True, env=ENVIRON, check=False
    )
    assert done.returncode == 2
    assert "Leave out one of the two" in done.stderr


def test_without_its_extra_the_demo_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['tritonclient'] = None; from millstream.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, "demo", "--executor", "kserve", "--cache", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, env=environ(tmp_path), check=False)
    assert done.returncode == 1
    assert "-m pip install 'millstream[demo,kserve]'" in done.stderr
    assert not (tmp_path / "cache").exists()
