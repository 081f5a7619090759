"""A process ends with its own exit code although a thread loads a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys
from threading import Event
import numpy as np, onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from millstream.consumers.resilience.leaving import LibraryThread, leave

weights = [numpy_helper.from_array(np.ones((64, 64), np.float32), f"w{i}") for i in range(500)]
nodes = [helper.make_node("MatMul", [f"y{i}", f"w{i}"], [f"y{i + 1}"]) for i in range(500)]
ends = [helper.make_tensor_value_info(name, 1, ["N", 64]) for name in ("y0", "y500")]
graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
loaded = Event()

def load():
    while True:
        ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        loaded.set()

LibraryThread(load, "models").start()
loaded.wait()
print("drained")
leave(7)
"""


@pytest.mark.process
def test_thread_that_loads_a_model_does_not_abort_the_process() -> None:
    for _ in range(3):
        ended = run(PROGRAM)
        assert (ended.returncode, ended.stdout) == (7, "drained\n"), ended.stderr


@pytest.mark.process
def test_process_without_such_a_thread_ends_as_usual() -> None:
    # In a process of its own: threads that other tests left behind would end this one.
    ended = run("from millstream.consumers.resilience.leaving import leave; leave(7); print('goes on')")
    assert (ended.returncode, ended.stdout) == (0, "goes on\n"), ended.stderr


@pytest.mark.process
def test_thread_that_is_no_daemon_keeps_no_process_alive() -> None:
    ended = run(
        "import threading, time; from millstream.consumers.resilience import leaving; leaving.EXIT_TIMEOUT = 0.2; "
        "threading.Thread(target=time.sleep, args=(50,), name='exporter').start(); print('drained'); leaving.leave(7)"
    )
    assert (ended.returncode, ended.stdout) == (7, "drained\n")
    assert "Threads that it waits for: exporter. The process ends without them." in ended.stderr


@pytest.mark.process
def test_pool_of_threads_ends_with_the_process_as_usual() -> None:
    ended = run(
        "from concurrent.futures import ThreadPoolExecutor; from millstream.consumers.resilience import leaving; "
        "pool = ThreadPoolExecutor(1); pool.submit(print, 'ran').result(); leaving.leave(7)"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ran\n", "")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
