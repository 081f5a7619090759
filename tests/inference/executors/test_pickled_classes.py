"""A pickle names the module of its class, which another program may lack. Each advice is followed and then works."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.python import PythonExecutor
from millstream.inference.repository import ModelVersion
from tests.inference.python_models import write_python

CODE = """
import pickle
import sys

import joblib

class Model:
    def __init__(self, folder, device):
        # alias
        self.session = {load}

    def predict(self, inputs):
        return {{"y": inputs["x"] * self.session.FACTOR}}
"""
LOADERS = ('pickle.loads((folder / "session.pkl").read_bytes())', 'joblib.load(folder / "session.pkl")')
ONE = {"x": np.ones((1, 2), np.float32)}


def write_pickled(
    repository: Path, module: str, *, load: str = LOADERS[0], alias: str = "", factor: int = 3, file: str = "charging"
) -> ModelVersion:
    """A model that loads the pickle of an object of `Session` in the module. The class is in the file beside `model.py`."""
    code = CODE.format(load=load).replace("# alias", alias)
    model = write_python(repository, code, **{file: f"class Session:\n    FACTOR = {factor}\n"})
    (model.file.parent / "session.pkl").write_bytes(f"c{module}\nSession\n)R.".encode())
    return model


def refusal(model: ModelVersion) -> str:
    with pytest.raises(ModelConfigError) as refused:
        PythonExecutor(model)
    return str(refused.value)


def factor_of(model: ModelVersion) -> float:
    executor = PythonExecutor(model)
    try:
        return float(executor.run(ONE)["y"][0, 0])
    finally:
        executor.close()


@pytest.fixture
def clean_modules() -> Iterator[None]:
    """Without the aliases of a test behind it."""
    yield
    for name in ("charging", "charging.sessions", "model"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("clean_modules")
@pytest.mark.parametrize("load", LOADERS)
def test_pickle_of_a_class_beside_the_model_loads_with_the_alias_that_the_message_names(
    tmp_path: Path, load: str
) -> None:
    said = refusal(write_pickled(tmp_path / "before", "charging", load=load))
    assert "model.py:10: the model can't be loaded: ModuleNotFoundError: No module named 'charging'." in said
    assert "The pickle names the module `charging`, in which its class was defined" in said
    assert 'Write `from . import charging` and `sys.modules["charging"] = charging` before the load' in said
    assert "with a dot" not in said
    alias = 'from . import charging; sys.modules["charging"] = charging'
    for factor in (2, 5):  # the second version gets its own class, not that of the first one
        model = write_pickled(tmp_path / str(factor), "charging", load=load, alias=alias, factor=factor)
        assert factor_of(model) == factor


@pytest.mark.usefixtures("clean_modules")
def test_pickle_of_a_class_in_a_package_beside_the_model_loads_with_the_alias(tmp_path: Path) -> None:
    def write(repository: Path, alias: str) -> ModelVersion:
        model = write_pickled(repository, "charging.sessions", alias=alias)
        beside = model.file.parent / "charging.py"
        package = model.file.parent / "charging"
        package.mkdir()
        (package / "__init__.py").touch()
        beside.rename(package / "sessions.py")
        return model

    assert 'and `sys.modules["charging"] = charging` before' in refusal(write(tmp_path / "before", ""))
    alias = (
        "from .charging import sessions; from . import charging; "
        'sys.modules["charging"] = charging; sys.modules["charging.sessions"] = sessions'
    )
    assert factor_of(write(tmp_path / "after", alias)) == 3


@pytest.mark.usefixtures("clean_modules")
def test_pickle_of_a_class_in_the_models_own_file_loads_with_the_alias(tmp_path: Path) -> None:
    said = refusal(write_pickled(tmp_path / "before", "model"))
    assert 'Write `sys.modules["model"] = sys.modules[__name__]` before the load' in said
    alias = (
        'from .charging import Session; globals()["Session"] = Session; sys.modules["model"] = sys.modules[__name__]'
    )
    assert factor_of(write_pickled(tmp_path / "after", "model", alias=alias)) == 3


def test_pickle_of_the_training_script_loads_with_the_class_that_the_message_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(write_pickled(tmp_path / "before", "__main__"))
    assert "AttributeError: Can't get attribute 'Session' on <module " in said
    assert "The script that defines the class pickled it" in said
    assert '`sys.modules["__main__"].Session = own.Session` before the load' in said
    alias = 'from . import own; sys.modules["__main__"].Session = own.Session'
    monkeypatch.setattr(sys.modules["__main__"], "Session", None, raising=False)  # so that it is gone afterwards
    assert factor_of(write_pickled(tmp_path / "after", "__main__", alias=alias, file="own")) == 3


def test_pickle_of_a_package_that_is_not_installed_asks_for_it(tmp_path: Path) -> None:
    said = refusal(write_pickled(tmp_path, "nothing_of_that_name.inner"))
    assert "The pickle names the module `nothing_of_that_name`, in which its class was defined" in said
    assert "no import does. Install it where the worker runs" in said


def test_pickle_of_a_class_that_its_module_lacks_asks_for_another_pickle(tmp_path: Path) -> None:
    said = refusal(write_pickled(tmp_path, "pathlib"))
    assert "the module has none of that name here. Bring the module up to date, or pickle the model again" in said
