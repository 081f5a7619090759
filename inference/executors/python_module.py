"""Loads a model's code as a package of its own, without a change of the import path."""

import importlib.util
import inspect
import re
import sys
import traceback
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.pickled_classes import how_to_unpickle

_numbers = count(1)
_FROM = re.compile(r"from\s+([\w.]+)\s+import\s+([^(#]*[^(#\s])")
_IMPORT = re.compile(r"import\s+([\w.]+)(\s+as\s+\w+|)\s*(?:#.*)?$")


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
            refusal = self._refusal(error) if takes(made, *arguments) else self._refusal_of_call(made, error)
            self.forget()  # afterwards, because the line of a class is found by its module
            raise refusal from error

    def forget(self) -> None:
        """Remove the package from `sys.modules`."""
        # A copy: other versions may be loaded meanwhile.
        for name in [name for name in list(sys.modules) if name == self._name or name.startswith(f"{self._name}.")]:
            del sys.modules[name]

    def _refusal_of_call(self, made: Any, error: BaseException) -> ModelConfigError:
        """The error for a class that can't be called with its arguments: no line of the model's own has run."""
        try:
            place = f"{inspect.getsourcefile(made)}:{inspect.getsourcelines(made)[1]}"
        except (OSError, TypeError):  # made by a function, for example
            place = str(self._file)
        return ModelConfigError(
            f"{place}: the model can't be loaded: {type(error).__name__}: {line_of(error)}. Expected a class that takes the "
            f"model's folder and the device: `def __init__(self, folder, device)` (`millstream docs models#a-model-in-python`)."
        )

    def _refusal(self, error: BaseException) -> ModelConfigError:
        place = place_in(self._file.parent, error) or str(self._file)
        hint = how_to_unpickle(self._file, error)
        if not hint and isinstance(error, ModuleNotFoundError):
            hint = how_to_import(self._file.parent, error)
        return ModelConfigError(f"{place}: the model can't be loaded: {type(error).__name__}: {line_of(error)}.{hint}")


def takes(called: Any, *arguments: object) -> bool:
    """Whether these arguments suit the parameters of something callable, as far as Python knows them."""
    try:
        inspect.signature(called, follow_wrapped=False).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a class in C may not say its parameters
        return True
    return True


def place_in(folder: Path, error: BaseException) -> str | None:
    """The innermost line of the model's own code in the traceback, as `file:line`; None if there is none."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(folder):
        return f"{error.filename}:{error.lineno}"
    frame = own_frame(folder, error)
    return None if frame is None else f"{frame.filename}:{frame.lineno}"


def own_frame(folder: Path, error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame of the model's own code in the traceback; None if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if Path(frame.filename).is_relative_to(folder)), None)


def how_to_import(folder: Path, error: ModuleNotFoundError) -> str:
    """How to import a module that Python doesn't find; empty if that isn't known."""
    frame = own_frame(folder, error)
    name, _, inner = (error.name or "").partition(".")
    importing = folder if frame is None else Path(frame.filename).parent
    for base in (importing, folder):
        if name and ((base / name).is_dir() or (base / f"{name}.py").is_file()):
            statement = _relative(frame.line or "" if frame else "", name, base, importing)
            return f" It lies in the model's folder, whose files import each other with a dot: write `{statement}`."
    # With a dot, it is a part of a package, and this is there.
    return "" if inner else " Install it where the worker runs, or copy it into the model's folder."


def _relative(line: str, name: str, base: Path, importing: Path) -> str:
    """The import of `line` as one that is relative to the file in the folder `importing`.

    `base`: the folder of the module `name`. It is `importing`, or a folder above.
    """
    module, names = name, "..."
    if match := _FROM.match(line):
        module, names = match[1], match[2]
    elif match := _IMPORT.match(line):
        *packages, last = match[1].split(".")
        module, names = ".".join(packages), last + match[2]
    own, wanted = list(importing.relative_to(base).parts), list(filter(None, module.split(".")))
    while own and wanted and own[0] == wanted[0]:  # both are in this package
        del own[0], wanted[0]
    return f"from {'.' * (len(own) + 1)}{'.'.join(wanted)} import {names}"
