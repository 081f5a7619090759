"""Loads a model's code as a package of its own, without a change of the import path."""

import importlib.util
import sys
import traceback
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.error_classification import line_of

_numbers = count(1)


class ModelModule:
    """The folder of a model as a package: `model.py` can import other files of it with `from .name import ...`.

    Each load gets a package name of its own. So two versions, or models with files of the same names, can't collide.
    """

    def __init__(self, file: Path) -> None:
        """Run the file. Raises ModelConfigError."""
        self._file = file
        self._name = f"millstream_model_{next(_numbers)}"
        spec = importlib.util.spec_from_file_location(self._name, file, submodule_search_locations=[str(file.parent)])
        if spec is None or spec.loader is None:
            raise ModelConfigError(f"{file} can't be loaded: it is no Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self._name] = module  # before it runs, because its imports and classes look it up there
        try:
            spec.loader.exec_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also `sys.exit` and a panic of a Rust library
            self.forget()
            raise self._refusal(error) from error
        self._module: ModuleType = module

    def make(self, name: str, *arguments: object) -> Any:
        """Create an object of a class in the module. Raises ModelConfigError."""
        made = getattr(self._module, name, None)
        if not callable(made):
            self.forget()
            raise ModelConfigError(
                f"{self._file} has no class `{name}`: expected `class {name}` with `predict` (`millstream docs models`)."
            )
        try:
            return made(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also `sys.exit` and a panic of a Rust library
            self.forget()
            raise self._refusal(error) from error

    def forget(self) -> None:
        """Remove the package from `sys.modules`."""
        # A copy: other versions may be loaded meanwhile.
        for name in [name for name in list(sys.modules) if name == self._name or name.startswith(f"{self._name}.")]:
            del sys.modules[name]

    def _refusal(self, error: BaseException) -> ModelConfigError:
        place = place_in(self._file.parent, error) or str(self._file)
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name and "." not in error.name:
            sibling = self._file.parent / error.name
            if sibling.is_dir() or sibling.with_suffix(".py").is_file():
                hint = f" It lies beside the model: write `from . import {error.name}`."
            else:
                hint = " Install it where the worker runs."
        return ModelConfigError(f"{place}: the model can't be loaded: {type(error).__name__}: {line_of(error)}.{hint}")


def place_in(folder: Path, error: BaseException) -> str | None:
    """The innermost line of the model's own code in the traceback, as `file:line`; None if there is none."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(folder):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
