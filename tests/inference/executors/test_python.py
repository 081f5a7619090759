import sys
from pathlib import Path

import numpy as np
import pytest

from millstream.inference.errors import ExecutorLost, ExecutorUnavailable, ModelConfigError, ModelRejected, OutOfMemory
from millstream.inference.executors.python import PythonExecutor
from millstream.inference.executors.python_module import ModelModule
from millstream.inference.repository import load_version
from millstream.topics.local.ports import free_ports
from tests.inference.doubling import DOUBLING
from tests.inference.python_models import predicting, write_python
from tests.stores.refusing import refusing

ONE = {"x": np.ones((1, 2), np.float32)}
PACKAGE = """
from .features import scaled
from . import constants

class Model:
    def __init__(self, folder, device):
        self.bias = float((folder / "bias.txt").read_text())
        self.device = device

    def predict(self, inputs):
        return {"y": scaled(inputs["x"]) * constants.FACTOR + self.bias}
"""


def loaded() -> set[str]:
    return {name for name in sys.modules if name.startswith("millstream_model_")}


def test_model_of_several_files_loads_with_nothing_on_the_import_path(tmp_path: Path) -> None:
    before, path = loaded(), list(sys.path)
    for name, factor in (("one", 10), ("two", 100)):
        features = "from .constants import FACTOR\n\ndef scaled(x):\n    return x / FACTOR * 2\n"
        model = write_python(tmp_path, PACKAGE, name=name, features=features, constants=f"FACTOR = {factor}\n")
        (model.file.parent / "bias.txt").write_text("1", encoding="utf-8")
    executors = [PythonExecutor(load_version(tmp_path, name), device="cpu") for name in ("one", "two")]
    for executor in executors:
        executor.warm_up()
        assert np.allclose(executor.run(ONE)["y"], 3)
    assert sys.path == path
    assert len(loaded() - before) == 6
    for executor in executors:
        executor.close()
    assert loaded() == before


def test_model_is_told_its_folder_and_device_and_is_closed(tmp_path: Path) -> None:
    code = """
    class Model:
        def __init__(self, folder, device):
            self.folder = folder
            (folder / "device").write_text(device)

        def predict(self, inputs):
            return {"y": inputs["x"]}

        def close(self):
            (self.folder / "closed").touch()
    """
    model = write_python(tmp_path, code)
    executor = PythonExecutor(model, device="cpu")
    assert (model.file.parent / "device").read_text() == "cpu" == executor.device
    executor.close()
    assert (model.file.parent / "closed").exists()


def test_what_the_model_writes_into_its_inputs_stays_there(tmp_path: Path) -> None:
    executor = PythonExecutor(predicting(tmp_path, "inputs['x'] *= 2\nreturn {'y': inputs['x']}"))
    inputs = np.ones((3, 2), np.float32)
    assert executor.run({"x": inputs})["y"].tolist() == [[2, 2]] * 3
    assert inputs.tolist() == [[1, 1]] * 3


def test_array_that_the_model_fills_anew_for_each_batch_changes_no_earlier_answer(tmp_path: Path) -> None:
    code = "self.y = self.__dict__.get('y', inputs['x'] * 0)\nself.y += 1\nreturn {'y': self.y}"
    executor = PythonExecutor(predicting(tmp_path, code))
    first = executor.run(ONE)["y"]
    assert executor.run(ONE)["y"].tolist() == [[2, 2]]
    assert first.tolist() == [[1, 1]]


def test_outputs_that_config_does_not_name_are_left_out(tmp_path: Path) -> None:
    config = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y, name: score}]\n"
    executor = PythonExecutor(predicting(tmp_path, "return {'z': 1, 'y': [1.5]}", config=config))
    assert {name: values.tolist() for name, values in executor.run(ONE).items()} == {"score": [1.5]}


@pytest.mark.parametrize("made", ["texts", "[[text] for text in texts]", "tuple(texts)", "np.array(texts, object)"])
def test_texts_of_a_list_come_out_whole(tmp_path: Path, made: str) -> None:
    texts = ["x\0", "\0", "a" * 3000, ""]
    code = "import numpy as np\nclass Model:\n    def __init__(self, folder, device): pass\n"
    code += f"    def predict(self, inputs):\n        texts = {texts!r}\n        return {{'y': {made}}}\n"
    found = PythonExecutor(write_python(tmp_path, code), device="cpu").run({"x": np.ones((4, 2), np.float32)})["y"]
    assert found.reshape(-1).tolist() == texts
    assert found.dtype == object, "numpy's own type gives each text as much memory as the longest"


def test_texts_go_in_and_come_out(tmp_path: Path) -> None:
    config = "inputs: [{tensor: x, fields: [name], dtype: string}]\noutputs: [{tensor: y}]\n"
    body = "return {'y': [name.upper() for name in inputs['x'][:, 0]]}"
    executor = PythonExecutor(predicting(tmp_path, body, config=config))
    executor.warm_up()
    assert executor.run({"x": np.array([["a"], ["é"]], object)})["y"].tolist() == ["A", "É"]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ("ValueError('no such airport')", ModelRejected),
        ("SystemExit(3)", ModelRejected),
        ("type('PanicException', (BaseException,), {})('out of bounds')", ModelRejected),  # as of libraries in Rust
        ("ValueError('CUDA error: out of memory')", ModelRejected),  # an event's text may say anything
        ("RuntimeError('mat1 and mat2 shapes cannot be multiplied')", ModelRejected),
        ("OSError('a file')", ModelRejected),
        ("MemoryError()", OutOfMemory),
        ("type('OutOfMemoryError', (RuntimeError,), {})('Tried to allocate 2 GiB')", OutOfMemory),
        ("RuntimeError('CUDA error: out of memory')", OutOfMemory),
        ("RuntimeError('cuDNN error: CUDNN_STATUS_INTERNAL_ERROR')", ExecutorUnavailable),
        ("RuntimeError('CUDA error: device-side assert triggered')", ExecutorLost),
        ("ConnectionRefusedError('feature store')", ExecutorUnavailable),
        ("TimeoutError('feature store')", ExecutorUnavailable),
        ("__import__('socket').gaierror('feature store')", ExecutorUnavailable),
        ("KeyError('cached') from ConnectionResetError('feature store')", ExecutorUnavailable),
        ("KeyError('cached') from None", ModelRejected),
    ],
)
def test_what_the_model_raises_decides(tmp_path: Path, raised: str, expected: type[Exception]) -> None:
    model = predicting(tmp_path, f"raise {raised}")
    with pytest.raises(expected) as told:
        PythonExecutor(model).run(ONE)
    assert type(told.value) is expected
    kind = type(told.value.__cause__).__name__
    assert str(told.value).startswith(f"{model.file}:8: {kind}: ")


def test_interrupt_of_the_user_is_not_the_models(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        PythonExecutor(predicting(tmp_path, "raise KeyboardInterrupt")).run(ONE)


def test_exception_raised_while_another_is_handled_counts_as_that_one(tmp_path: Path) -> None:
    body = (
        "try:\n    raise ConnectionError('feature store')\nexcept ConnectionError:\n    raise KeyError('no fallback')"
    )
    with pytest.raises(ExecutorUnavailable, match="KeyError: 'no fallback'"):
        PythonExecutor(predicting(tmp_path, body)).run(ONE)


def test_outage_that_our_caller_is_handling_is_not_the_models(tmp_path: Path) -> None:
    body = "self.calls += 1\nraise ConnectionError('away') if self.calls == 1 else ValueError(f'bad {self.calls}')"
    executor = PythonExecutor(predicting(tmp_path, body))
    try:
        executor.run(ONE)
    except ExecutorUnavailable:
        with pytest.raises(ModelRejected, match="ValueError: bad 2"):
            executor.run(ONE)


def test_server_that_is_away_counts_by_what_an_http_client_raises(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    model = predicting(tmp_path, f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}')")
    with pytest.raises(ExecutorUnavailable, match="URLError"):
        PythonExecutor(model).run(ONE)


@pytest.mark.parametrize("package", ["httpx", "httpx2"])
def test_client_whose_errors_have_no_built_in_cause_counts_by_their_names(tmp_path: Path, package: str) -> None:
    body = f"""
    network_error = type("NetworkError", (Exception,), {{"__module__": "{package}"}})
    raise type("ConnectError", (network_error,), {{"__module__": "{package}"}})("refused")
    """
    with pytest.raises(ExecutorUnavailable, match="ConnectError: refused"):
        PythonExecutor(predicting(tmp_path, body)).run(ONE)


CLIENTS = {
    "urllib": "import urllib.request\nurllib.request.urlopen('{url}')",
    "requests": "import requests\nrequests.get('{url}').raise_for_status()",
    "httpx": "import httpx\nhttpx.get('{url}').raise_for_status()",
    "httpx2": "import httpx2\nhttpx2.get('{url}').raise_for_status()",
    "no answer": "import requests\nraise requests.HTTPError('made by hand')",
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 400, 404, 500])
def test_status_of_a_server_without_capacity_counts_as_an_outage(tmp_path: Path, status: int, client: str) -> None:
    model = predicting(tmp_path, CLIENTS[client])
    is_outage = status not in {400, 404, 500} and client != "no answer"
    with refusing(status, {}) as url, pytest.raises(ExecutorUnavailable if is_outage else ModelRejected):
        model.file.write_text(model.file.read_text(encoding="utf-8").replace("{url}", url), encoding="utf-8")
        PythonExecutor(model).run(ONE)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("None", "`predict` returned NoneType, not a dict of arrays by output name"),
        ("inputs['x']", "`predict` returned ndarray, not a dict"),
        ("__import__('asyncio').sleep(0)", "expected `def predict`, found `async def predict`"),
        ("{'score': [1.0]}", r"returned the outputs \['score'\], without \['y'\], which config.yaml names"),
        ("{'y': [[1, 2], [3]]}", "output `y` has lists of different lengths, or values beside lists"),
        ("{'y': 1.0}", "output `y` is one float, not an array or a list with an entry for each event"),
        ("{'y': (each for each in [1.0])}", "output `y` is one generator, not an array"),
        ("{'y': {'a': 1}}", "output `y` is one dict, not an array"),
        ("{'y': [np.zeros(2), np.zeros(3)]}", "output `y` is no array: .*inhomogeneous"),
        ("{'y': [1.0, 2.0]}", r"output `y` has shape \[2\] for 1 events"),
        ("{'y': [['a'], ['b', 'c']][:1] + [7]}", "output `y` has lists of different lengths, or values beside lists"),
        ("{'y': [[['a'], ['b', 'c']]]}", "output `y` has lists of different lengths"),
        ("{'y': [['a', 7]]}", "output `y` holds int beside str: give all events the same type"),
        ("{'y': [[7, 'a']]}", "output `y` holds int beside str: give all events the same type"),
        ("{'y': [[True, 1]]}", "output `y` holds bool beside int"),
        ("{'y': [[2**53 + 1, 0.5]]}", "output `y` holds float beside int"),
        ("{'y': [[1, 2**63]]}", "output `y` holds an integer that is too large"),
        ("{'y': [2**63]}", "output `y` holds an integer that is too large"),
        ("{'y': [[-1, 2**63]]}", "output `y` holds an integer that is too large: a prediction takes"),
        ("{'y': [10**400]}", "output `y` holds an integer that is too large"),
        ("{'y': [[10**400, 0.5]]}", "output `y` holds float beside int"),
        ("{'y': [np.ma.masked]}", "output `y` holds a masked value"),
        ("{'y': [[1.0, np.ma.masked]]}", "output `y` holds a masked value"),
        ("{'y': ['a\\ud800']}", "output `y` holds a text with half of a character"),
        ("{'y': np.ma.array([[1, 2]], mask=[[False, True]])}", "output `y` holds a masked value"),
        ("{'y': [b'a']}", "output `y` holds bytes"),
        ("{'y': [None]}", "output `y` holds NoneType: a prediction takes float16 to float64"),
        ("{'y': [{'a': 1}]}", "output `y` holds dict"),
        ("{'y': np.zeros(1, np.complex64)}", "output `y` holds complex64"),
        ("{'y': np.zeros(1, np.uint64)}", "output `y` holds uint64"),
        ("{'y': np.zeros(1, 'M8[s]')}", r"output `y` holds datetime64\[s\]"),
    ],
)
def test_outputs_that_are_not_as_declared_stop_the_start_and_reject_an_event(
    tmp_path: Path, returned: str, says: str
) -> None:
    model = predicting(tmp_path, f"return {returned}", config=f"{DOUBLING}batch_sizes: [1]\n")
    executor = PythonExecutor(model)
    with pytest.raises(ModelRejected, match=says) as rejected:
        executor.run(ONE)
    assert str(rejected.value).startswith(model.place)
    with pytest.raises(ModelConfigError, match=says):
        executor.warm_up()


def test_predict_without_inputs_stops_the_start(tmp_path: Path) -> None:
    code = "class Model:\n    def __init__(self, folder, device): ...\n    def predict(self): ...\n"
    with pytest.raises(ModelConfigError, match=r"model\.py: expected `predict\(self, inputs\)` .* 2 were given"):
        PythonExecutor(write_python(tmp_path, code)).warm_up()


def test_type_error_of_a_decorated_predict_rejects_its_event(tmp_path: Path) -> None:
    code = """
    import functools

    def with_bias(predict):
        return functools.wraps(predict)(lambda self, inputs: predict(self, inputs, 1))

    class Model:
        def __init__(self, folder, device): ...

        @with_bias
        def predict(self, inputs, bias):
            raise TypeError("text")
    """
    executor = PythonExecutor(write_python(tmp_path, code))
    executor.warm_up()
    with pytest.raises(ModelRejected, match="TypeError: text"):
        executor.run(ONE)


def test_model_that_refuses_blank_events_starts_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = "if not inputs['x'].all():\n    raise ValueError('blank')\nreturn {'y': inputs['x']}"
    executor = PythonExecutor(predicting(tmp_path, body), max_events=2)
    executor.warm_up()
    (told,) = caplog.messages
    assert told.startswith("not warmed up for 1, 2 events: ")
    assert "blank" in told
    assert executor.run(ONE)["y"].tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("meen(inputs['x'])", r"model\.py:8: NameError: name 'meen' is not defined\. .* Correct this line\."),
        ("import absent_package", r"model\.py:8: ModuleNotFoundError: .* Install it where the worker runs"),
        ("import constants", r"model\.py:8: ModuleNotFoundError: .* write `from \. import constants`"),
        ("from math import meen", r"model\.py:8: ImportError: cannot import name 'meen'"),
        ("from . import broken", r"broken\.py:1: SyntaxError: "),
    ],
)
def test_fault_of_the_code_stops_the_start_and_rejects_an_event(tmp_path: Path, fault: str, says: str) -> None:
    code = f"""
    class Model:
        def __init__(self, folder, device): ...

        def predict(self, inputs):
            # the next line is never right
            if True:
                {fault}
            return {{"y": inputs["x"]}}
    """
    executor = PythonExecutor(write_python(tmp_path, code, constants="FACTOR = 1\n", broken="def\n"))
    with pytest.raises(ModelConfigError, match=says):
        executor.warm_up()
    with pytest.raises(ModelRejected, match=says):
        executor.run(ONE)


@pytest.mark.parametrize(
    "body",
    [
        "if inputs['x'].all():\n    y = inputs['x']\nreturn {'y': y}",
        "if inputs['x'].all():\n    y = inputs['x']\ndef made():\n    return y\nreturn {'y': made()}",
        "eval('1' * int(inputs['x'].all()))\nreturn {'y': inputs['x']}",
        "class Unknown(NameError): ...\nif not inputs['x'].all():\n    raise Unknown('km')\nreturn {'y': inputs['x']}",
    ],
    ids=["unbound local", "unbound free variable", "syntax of a text", "error of a library"],
)
def test_error_that_blank_events_may_cause_stops_no_start(tmp_path: Path, body: str) -> None:
    executor = PythonExecutor(predicting(tmp_path, body))
    executor.warm_up()
    assert executor.warmed_sizes == ()
    assert executor.run(ONE)["y"].tolist() == [[1, 1]]


def test_model_for_which_the_memory_suffices_in_parts_only_starts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = PythonExecutor(
        predicting(tmp_path, "if len(inputs['x']) > 2:\n    raise MemoryError\nreturn {'y': inputs['x']}")
    )
    executor.warm_up()
    (told,) = caplog.messages
    assert told.startswith("4 events at once do not fit the memory")


def test_model_for_which_the_memory_never_suffices_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(ExecutorUnavailable, match="MemoryError: full"):
        PythonExecutor(predicting(tmp_path, "raise MemoryError('full')")).warm_up()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("class Model(:\n", r"model.py:1: the model can't be loaded: SyntaxError: invalid syntax"),
        (
            "import nothing_of_that_name\n",
            r"model.py:1: .*ModuleNotFoundError.* Install it where the worker runs, or copy it",
        ),
        ("\nimport constants\n", r"model.py:2: .* It lies in the model's folder.*: write `from . import constants`."),
        ("import constants as c  # own\n", r"write `from . import constants as c`."),
        ("from constants import (\n    FACTOR,\n)\n", r"write `from .constants import ...`."),
        ("def predict(inputs): ...\n", "has no class `Model`: expected `class Model` with `predict`"),
        (
            "class Model:\n    def predict(self, inputs): ...\n",
            r"can't be loaded: TypeError: Model\(\) takes no arguments",
        ),
        (
            "\n\nclass Model:\n    def __init__(self): ...\n",
            r"model.py:3: .*takes 1 positional argument but 3 were given\. Expected .*`def __init__\(self, folder, device\)`",
        ),
        (
            "from .constants import FACTOR\nclass Model:\n    def __init__(self, folder, device): FACTOR()\n",
            r"model.py:3: the model can't be loaded: TypeError: 'int' object is not callable\.$",
        ),
        (
            "class Model:\n    def __init__(self, folder, device): ...\n",
            r"class `Model` has no `predict\(self, inputs\)`",
        ),
        (
            "class Model:\n    def __init__(self, folder, device):\n        open(folder / 'weights')\n",
            r"model.py:3: .*FileNotFoundError: .*weights",
        ),
        ("import sys\nsys.exit('no licence')\n", r"model.py:2: .*SystemExit: no licence"),
    ],
)
def test_model_that_does_not_load_is_refused_with_its_line(tmp_path: Path, code: str, says: str) -> None:
    before = loaded()
    model = write_python(tmp_path, code, constants="FACTOR = 1\n")
    with pytest.raises(ModelConfigError, match=says) as refused:
        PythonExecutor(model)
    assert str(model.file) in str(refused.value)
    assert loaded() == before


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("from schemas.order import score", "from .order import score"),
        ("import schemas.order", "from . import order"),
        ("from order import score, other", "from .order import score, other"),
        ("from constants import FACTOR", "from ..constants import FACTOR"),
    ],
)
def test_import_within_a_package_beside_the_model_is_told_as_it_must_be(tmp_path: Path, wrong: str, right: str) -> None:
    code = "from .schemas import order\n\nclass Model:\n    def __init__(self, folder, device): ...\n"
    model = write_python(tmp_path, f"{code}    def predict(self, inputs): ...\n", constants="FACTOR = 1\n")
    package = model.file.parent / "schemas"
    package.mkdir()
    (package / "order.py").write_text("score = other = 1\n")
    (package / "__init__.py").write_text(f"{wrong}\n")
    with pytest.raises(ModelConfigError) as refused:
        PythonExecutor(model)
    assert "__init__.py:1: the model can't be loaded: ModuleNotFoundError" in str(refused.value)
    assert f"write `{right}`." in str(refused.value)
    (package / "__init__.py").write_text(f"{right}\n")
    PythonExecutor(model).close()


def test_two_loads_of_a_file_share_nothing(tmp_path: Path) -> None:
    file = write_python(tmp_path, "STATE = []\n\ndef made():\n    STATE.append(1)\n    return len(STATE)\n").file
    modules = [ModelModule(file), ModelModule(file)]
    assert [module.make("made") for module in modules] == [1, 1]
    for module in modules:
        module.forget()


@pytest.mark.parametrize(
    "returned",
    [
        "[np.str_('a'), 'b']",
        "np.array([np.str_('a'), 'b'], object)",
        "[Label.A, Label.B]",
    ],
)
def test_texts_of_other_classes_are_plain_ones(tmp_path: Path, returned: str) -> None:
    """Encoders take no others, and an enum's own text would be another one."""
    body = f"import enum\nclass Label(str, enum.Enum):\n    A, B = 'a', 'b'\nreturn {{'y': {returned}}}"
    made = PythonExecutor(predicting(tmp_path, body), max_events=2).run({"x": np.zeros((2, 1), np.float32)})
    assert made["y"].tolist() == ["a", "b"]
    assert {type(text) for text in made["y"].tolist()} == {str}


@pytest.mark.parametrize("returned", ["[1.0]", "[1.5]", "[float('nan')]", "['1']", "[[0.1, 0.2]]", "[7]", "[-1]"])
def test_index_of_no_class_rejects_its_event_alone(tmp_path: Path, returned: str) -> None:
    """The model's other events are answered, so it's not config.yaml that is wrong."""
    config = (
        "inputs: [{tensor: x, fields: [a], dtype: float32}]\noutputs: [{tensor: y, name: label, classes: [a, b, c]}]\n"
    )
    executor = PythonExecutor(predicting(tmp_path, f"return {{'y': {returned}}}", config=config), max_events=2)
    with pytest.raises(ModelRejected, match="label"):
        executor.run(ONE)
