"""Inputs and outputs that stay on the device. On the CPU, nothing is captured, but all else is the same."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from millstream.inference.config_sections import RuntimeOptions
from millstream.inference.devices import gpus
from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.onnx import OnnxExecutor
from millstream.inference.executors.onnx_graphs import GraphRunner
from millstream.inference.executors.single_thread import SingleThread
from tests.inference.executors.test_onnx import floats
from tests.inference.models import doubling, looking_up


def session_of(file: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def test_bound_outputs_are_those_of_an_ordinary_run(tmp_path: Path) -> None:
    session = session_of(doubling(tmp_path).file)
    runner = GraphRunner(session, ["y"], "model m", memory="cpu")
    kept = []
    for number in range(3):
        for events in (1, 4, 2):
            inputs = {"x": floats(events) + number}
            (found,) = runner.run(inputs)
            (plain,) = session.run(["y"], inputs)
            assert np.array_equal(found, plain)
            kept.append((found, plain))
    assert all(np.array_equal(found, plain) for found, plain in kept)  # no later run has changed them
    runner.close()


def test_rejected_events_leave_the_runner_as_it_was(tmp_path: Path) -> None:
    runner = GraphRunner(session_of(looking_up(tmp_path).file), ["y"], "model m", memory="cpu")
    for _ in range(2):
        with pytest.raises(Exception, match="idx=7 must be within"):
            runner.run({"x": np.array([[1], [7]])})
        assert runner.run({"x": np.array([[1], [2]])})[0].tolist() == [[20], [30]]


def test_model_that_can_not_be_captured_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Memory of a device that is not there fails as a capture does."""
    if gpus():
        pytest.skip("a GPU is here, so this memory is there")
    runner = GraphRunner(session_of(doubling(tmp_path).file), ["y"], "model m", memory="cuda")
    with pytest.raises(
        ModelConfigError, match=r"model m: the model can't be captured .* Leave out `runtime.cuda_graphs`"
    ):
        runner.run({"x": floats(2)})


def test_one_thread_makes_the_calls_of_all() -> None:
    thread = SingleThread("one")
    with ThreadPoolExecutor(4) as callers:
        names = set(callers.map(lambda _: thread.call(lambda: threading.current_thread().name), range(20)))
    assert names == {"one"}
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)
    assert thread.call(lambda: 3) == 3
    thread.close()


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
def test_graphs_answer_as_ordinary_runs_do(tmp_path: Path) -> None:
    model = doubling(tmp_path)
    object.__setattr__(model, "runtime", RuntimeOptions(cuda_graphs=True))
    executor = OnnxExecutor(model, device="cuda", max_events=8)
    executor.warm_up()
    for events in (1, 5, 8, 5):
        assert np.array_equal(executor.run({"x": floats(events)})["y"], floats(events) * 2)
    executor.close()
