import importlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.inference.devices import gpus
from millstream.inference.errors import ModelConfigError, OutOfMemory
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.torch import TorchExecutor
from millstream.inference.repository import ModelVersion, load_version
from tests.inference.doubling import DOUBLING
from tests.inference.executors.torch_models import (
    exported,
    scripted,
    torch,
    with_expression_that_touches,
    with_pickle_that_touches,
)

pytestmark = pytest.mark.skipif(torch is None, reason="torch is not installed: .venv/bin/pip install -e '.[torch]'")

INTO_MEMORY = "inputs: [{tensor: x, fields: [a], dtype: int64}]\noutputs: [{tensor: y}]\n"


def floats(events: int) -> Any:
    return np.arange(events * 2, dtype=np.float32).reshape(events, 2)


def double(_: Any, x: Any) -> Any:
    return x + x


def example() -> dict[str, Any]:
    return {"x": torch.zeros(3, 2)}


def test_sizes_are_those_that_the_exported_batch_axis_allows(tmp_path: Path) -> None:
    executor = TorchExecutor(exported(tmp_path, double, example(), batch=(2, 6)), device="cpu", max_events=64)
    assert executor.max_events == 6
    assert executor.batch_sizes == (2, 4, 6)
    executor.warm_up()
    for events in range(1, 7):
        assert np.array_equal(executor.run({"x": floats(events)})["y"], floats(events) * 2)


def test_fixed_batch_axis_sets_the_batch_size(tmp_path: Path) -> None:
    executor = TorchExecutor(exported(tmp_path, double, example(), batch=None), device="cpu", max_events=64)
    assert (executor.batch_sizes, executor.max_events) == ((3,), 3)
    assert np.array_equal(executor.run({"x": floats(2)})["y"], floats(2) * 2)


@pytest.mark.parametrize("save", [exported, scripted])
def test_half_precision_is_widened(tmp_path: Path, save: Any) -> None:
    model = save(tmp_path, lambda _, x: (x + x).to(torch.bfloat16), example())
    outputs = TorchExecutor(model, device="cpu").run({"x": floats(2)})
    assert outputs["y"].dtype == np.float32
    assert outputs["y"].tolist() == [[0, 2], [4, 6]]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (
            "{tensor: x, field: f, dtype: int64, shape: [2]}",
            "tensor `x` is float32 in the model, but config.yaml says int64. Write `dtype: float32`.",
        ),
        (
            "{tensor: x, field: f, dtype: float32, shape: [3]}",
            r"has shape \['up to 4096', '2'\] .* gives \[3\] an event, from f",
        ),
        ("{tensor: x, field: f, dtype: float32, shape: [2, 1]}", r"gives \[2, 1\] an event, from f"),
        (
            "{tensor: x, field: f, dtype: string, shape: [2]}",
            "tensor `x` is of strings, which torch has no tensors for",
        ),
    ],
)
def test_mapping_that_does_not_fit_the_models_inputs_is_refused(tmp_path: Path, inputs: str, says: str) -> None:
    model = exported(tmp_path, double, example(), config=f"inputs: [{inputs}]\noutputs: [{{tensor: y}}]\n")
    with pytest.raises(ModelConfigError, match=says) as refused:
        TorchExecutor(model, device="cpu")
    assert str(refused.value).startswith(model.place[:-1])  # the line follows in some


def summed(_: Any, x: Any) -> Any:
    return {"y": x.sum(1)}


def summing(folder: Path, length: tuple[int, int] | None, items: str) -> ModelVersion:
    """A model that takes so many items an event; `length` None: 20 only. `items`: options in config.yaml."""
    config = f"outputs: [{{tensor: y}}]\ninputs:\n  - {{tensor: x, field: f, dtype: float32, {items}\n"
    return exported(folder, summed, {"x": torch.zeros(3, 20)}, config=config, length=length)


@pytest.mark.parametrize(
    ("length", "items", "says"),
    [
        (
            (1, 64),
            "max_length: 128}",
            "the model takes up to 64 items on axis 1 of `x`, but config.yaml says `max_length: 128`. Write `max_length: 64`.",
        ),
        (
            (1, 64),
            "max_length: 128}\nlength_buckets: [8, 100]",
            "but config.yaml says `max_length: 128`. Write `max_length: 64` and `length_buckets: [8, 64]`.",
        ),
        (
            (18, 64),
            "max_length: 64}",
            "the model takes 18 to 64 items on axis 1 of `x`, but short events are padded to 16 (`length_buckets`). Write "
            "`length_buckets: [32, 64]`.",
        ),
        (
            (18, 64),
            "max_length: 128}",
            "says `max_length: 128`. Write `max_length: 64` and `length_buckets: [32, 64]`.",
        ),
        (
            (18, 64),
            "max_length: 10}",
            "says `max_length: 10`. Write `max_length: 18` and `length_buckets: [18]`.",
        ),
        (
            None,
            "max_length: 64}",
            "varies in length in config.yaml, but the model takes 20 items only. Export it with a free axis, or write "
            "`max_length: 20` and `length_buckets: [20]`.",
        ),
        (None, "max_length: 20}", "Export it with a free axis, or write `max_length: 20` and `length_buckets: [20]`."),
        (
            (1, 64),
            "shape: [65]}",
            "has shape ['up to 4096', 'up to 64'] in the model (first axis: the event), but config.yaml gives [65] an event",
        ),
    ],
)
def test_lengths_beyond_those_of_the_program_are_refused(
    tmp_path: Path, length: tuple[int, int] | None, items: str, says: str
) -> None:
    model = summing(tmp_path, length, items)
    with pytest.raises(ModelConfigError) as refused:
        open_executor(model, trust=True, device="cpu")
    assert str(refused.value).startswith(model.place_at(3))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("length", "items"),
    [
        ((1, 64), "max_length: 64}"),
        ((18, 64), "max_length: 64}\nlength_buckets: [32, 64]"),
        ((18, 64), "max_length: 18}\nlength_buckets: [18]"),
        (None, "max_length: 20}\nlength_buckets: [20]"),
        ((1, 64), "shape: [64]}"),
    ],
)
def test_lengths_that_the_messages_advise_are_those_that_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, length: tuple[int, int] | None, items: str
) -> None:
    open_executor(summing(tmp_path, length, items), trust=True, device="cpu").warm_up()
    assert "not warmed up" not in caplog.text


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda _, x: {"z": x + 1}, r"names the output `y`, but the model's outputs are \['z'\]"),
        (lambda _, x: (x + 1, x + 2), r"names 1 outputs \(y\), but the model gives 2, in order and without names"),
        (lambda _, x: x.sum() + 1, r"output `y` has shape \[\] for 1 events: its first axis must be the event"),
    ],
)
def test_outputs_that_are_not_as_declared_stop_the_start(tmp_path: Path, forward: Any, says: str) -> None:
    executor = TorchExecutor(exported(tmp_path, forward, example()), device="cpu")
    with pytest.raises(ModelConfigError, match=says):
        executor.warm_up()


def test_output_that_is_not_kept_needs_no_axis_of_events(tmp_path: Path) -> None:
    executor = TorchExecutor(exported(tmp_path, lambda _, x: {"sum": x.sum(), "y": x + x}, example()), device="cpu")
    assert executor.run({"x": floats(2)}).keys() == {"y"}


@pytest.mark.parametrize("save", [exported, scripted])
def test_checkpoint_is_told_from_a_model(tmp_path: Path, save: Any) -> None:
    file = save(tmp_path, double, example()).file
    torch.save({"weights": torch.zeros(2)}, file)
    with pytest.raises(ModelConfigError, match=r"can't be loaded: this looks like a checkpoint: .* as model.pt2"):
        TorchExecutor(load_version(tmp_path, "m"), device="cpu")


@pytest.mark.parametrize(
    ("save", "name", "says"), [(exported, "model.pt", "model.pt2"), (scripted, "model.pt2", "model.pt,")]
)
def test_model_of_torch_with_the_other_ones_name_is_told_which(tmp_path: Path, save: Any, name: str, says: str) -> None:
    file = save(tmp_path, double, example()).file
    file.rename(file.with_name(name))
    with pytest.raises(ModelConfigError, match=rf"TorchScript\. .*ame it {says}"):
        TorchExecutor(load_version(tmp_path, "m"), device="cpu")


def test_micro_batch_too_large_for_the_memory_is_told_apart(tmp_path: Path) -> None:
    """The model makes as many zeros as its first event says; 2 ** 50 of them pass every address space."""

    @torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
    def zeros(x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros([int(x[0, 0])]).sum()

    model = scripted(tmp_path, lambda _, x: zeros(x), {"x": torch.ones(2, 1, dtype=torch.int64)}, config=INTO_MEMORY)
    executor = TorchExecutor(model, device="cpu")
    assert executor.run({"x": np.array([[3]])})["y"].tolist() == [[3.0]]
    with pytest.raises(OutOfMemory) as too_large:
        executor.run({"x": np.array([[2**50]])})
    assert model.place in str(too_large.value)


@pytest.mark.parametrize("spoil", [with_pickle_that_touches, with_expression_that_touches])
def test_program_that_runs_code_does_not_run_it_unless_its_author_is_trusted(tmp_path: Path, spoil: Any) -> None:
    model, touched = exported(tmp_path, double, example()), tmp_path / "touched"
    spoil(model.file, touched)
    with pytest.raises(ModelConfigError, match=rf"{model.file} can run code .* Write `trust: true` under `model:`"):
        open_executor(model, device="cpu")
    assert not touched.exists()
    with suppress(ModelConfigError):
        open_executor(model, trust=True, device="cpu")
    assert touched.exists()  # else this test would show nothing


def test_torchscript_that_writes_files_is_not_run_unless_its_author_is_trusted(tmp_path: Path) -> None:
    written = tmp_path / "written"

    @torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
    def saved(x: torch.Tensor, file: str) -> torch.Tensor:
        torch.save(x, file)
        return x

    model = scripted(tmp_path, lambda _, x: saved(x, str(written)), example())
    written.unlink()  # made by tracing
    with pytest.raises(ModelConfigError, match=rf"{model.file} can run code"):
        open_executor(model, device="cpu")
    open_executor(model, trust=True, device="cpu").warm_up()
    assert written.exists()  # else this test would show nothing


def test_gradients_are_not_kept(tmp_path: Path) -> None:
    executor = TorchExecutor(exported(tmp_path, lambda _, x: (x * torch.ones(2, requires_grad=True),), example()))
    assert executor.run({"x": floats(2)})["y"].tolist() == floats(2).tolist()


def multiply(_: Any, x: Any) -> Any:
    return x @ torch.tensor([[1.0, 2.0], [3.0, 4.001]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("save", [exported, scripted])
def test_operators_compute_with_16_bits_by_option(tmp_path: Path, save: Any, dtype: str) -> None:
    plain = TorchExecutor(save(tmp_path / "a", multiply, example()), device="cpu")
    model = save(tmp_path / "b", multiply, example(), config=f"{DOUBLING}runtime: {{dtype: {dtype}}}\n")
    executor = TorchExecutor(model, device="cpu")
    executor.warm_up()
    exact, rounded = (each.run({"x": floats(3)})["y"] for each in (plain, executor))
    assert rounded.dtype == np.float32
    assert not np.array_equal(exact, rounded)
    assert np.allclose(exact, rounded, rtol=2**-8)


def test_compiled_program_answers_as_before_at_every_size(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("torch needs a C++ compiler to compile for the CPU")
    executor = TorchExecutor(
        exported(tmp_path, double, example(), config=f"{DOUBLING}runtime: {{compile: true}}\n"),
        device="cpu",
        max_events=4,
    )
    executor.warm_up()
    for events in (1, 2, 3, 4):
        assert np.array_equal(executor.run({"x": floats(events)})["y"], floats(events) * 2)


def test_worker_does_not_start_with_a_program_that_can_not_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inductor = importlib.import_module("torch._inductor.config")
    monkeypatch.setattr(inductor.cpp, "cxx", (str(tmp_path / "no-compiler"),))
    monkeypatch.setattr(inductor, "force_disable_caches", True)
    torch.compiler.reset()
    model = exported(tmp_path, double, example(), config=f"{DOUBLING}runtime: {{compile: true}}\n")
    executor = TorchExecutor(model, device="cpu")
    with pytest.raises(ModelConfigError, match=r"torch can't compile the model. Leave out `runtime.compile`"):
        executor.warm_up()


def test_torchscript_is_not_compiled(tmp_path: Path) -> None:
    model = scripted(tmp_path, double, example(), config=f"{DOUBLING}runtime: {{compile: true}}\n")
    with pytest.raises(ModelConfigError, match=r"`runtime.compile` is for model.pt2, and model.pt is TorchScript"):
        TorchExecutor(model, device="cpu")


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
def test_auto_takes_the_gpu_and_pads_to_the_batch_sizes(tmp_path: Path) -> None:
    executor = TorchExecutor(exported(tmp_path, double, example()), device="auto", max_events=8)
    assert executor.device == "cuda"
    executor.warm_up()
    assert np.array_equal(executor.run({"x": floats(5)})["y"], floats(5) * 2)


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
def test_calls_at_the_same_time_have_their_own_streams_and_answers(tmp_path: Path) -> None:
    executor = TorchExecutor(exported(tmp_path, double, example()), device="cuda", max_events=8)
    executor.warm_up()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: executor.run({"x": floats(5) + number})["y"], range(200)))
    assert all(np.array_equal(each, (floats(5) + number) * 2) for number, each in enumerate(found))


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
@pytest.mark.parametrize("runtime", ["{cuda_graphs: true}", "{cuda_graphs: true, compile: true, dtype: float16}"])
def test_graphs_answer_as_ordinary_calls_do(tmp_path: Path, runtime: str) -> None:
    model = exported(tmp_path, double, example(), config=f"{DOUBLING}runtime: {runtime}\n")
    executor = TorchExecutor(model, device="cuda", max_events=8)
    executor.warm_up()
    for events in (1, 5, 8, 5):
        assert np.array_equal(executor.run({"x": floats(events)})["y"], floats(events) * 2)


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
def test_memory_limit_makes_a_large_batch_run_out_of_memory(tmp_path: Path) -> None:
    model = exported(tmp_path, lambda _, x: x.repeat(1, 2**16), example(), batch=(1, 2**16))
    executor = TorchExecutor(model, device="cuda", max_events=2**14, gpu_memory=256 * 2**20)
    with pytest.raises(OutOfMemory):
        executor.run({"x": floats(2**14)})
    executor.close()
