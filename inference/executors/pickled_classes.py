"""Says how to load a pickle of a class of the user's own, whose module Python doesn't find where the worker runs."""

import re
import traceback
from pathlib import Path

_NO_CLASS = re.compile(r"Can't get attribute '(?P<name>[^']+)' on <module '(?P<module>[^']+)'")
_LOADS = re.compile(r"\b(?:loads?|read_pickle)\(")
_MAIN = re.compile(
    r"(?:.+\.)?__(?:mp_)?main__"
)  # also `millstream.__main__`, and that of a process that `spawn` started
_PARAMETERS = "Or save the model's parameters in place of the object, and create the object in `model.py`."


def how_to_unpickle(file: Path, error: BaseException) -> str:
    """What to do about a pickle whose class isn't found; empty: the error is another one.

    Args:
        file: the model's `model.py`.
        error: what it raised.
    """
    if isinstance(error, ModuleNotFoundError) and error.name and _is_unpickled(error):
        return _of_module(file, error.name)
    if isinstance(error, AttributeError) and (match := _NO_CLASS.match(str(error))):
        return _of_class(match["name"], match["module"])
    return ""


def _is_unpickled(error: BaseException) -> bool:
    """Whether a pickle asked for the module, and no import statement."""
    # pickle in C has no frames of its own, so the innermost one is that of its caller. In Python, it is `find_class`.
    innermost = traceback.extract_tb(error.__traceback__)[-1:]
    return any(frame.name == "find_class" or _LOADS.search(frame.line or "") for frame in innermost)


def _of_module(file: Path, module: str) -> str:
    name = module.partition(".")[0]
    cause = f" The pickle names the module `{module}`, in which its class was defined; no import does."
    own = file.parent / f"{name}.py"
    if own == file:
        alias = f'`sys.modules["{name}"] = sys.modules[__name__]`'
    elif own.is_file() or (file.parent / name).is_dir():
        alias = f'`from . import {name}` and `sys.modules["{name}"] = {name}`'
    else:
        return (
            f"{cause} Install it where the worker runs. If it is a file of your own, copy it into the model's folder, and write "
            f'`from . import {name}` and `sys.modules["{name}"] = {name}` before the load. {_PARAMETERS}'
        )
    return f"{cause} Write {alias} before the load (`millstream docs models#a-model-in-python`). {_PARAMETERS}"


def _of_class(name: str, module: str) -> str:
    if not _MAIN.fullmatch(module):
        return (
            " The pickle names this class, and the module has none of that name here. Bring the module up to date, or pickle the "
            f"model again. {_PARAMETERS}"
        )
    return (
        " The script that defines the class pickled it, so the pickle looks for the class in the program that runs. Copy the "
        "class into a file beside `model.py`, say `own.py`, and write `from . import own` and "
        f'`sys.modules["__main__"].{name} = own.{name}` before the load (`millstream docs models#a-model-in-python`). '
        f"{_PARAMETERS}"
    )
