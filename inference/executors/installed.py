"""The executors' names: Millstream's own, and those of other installed packages (the entry points `millstream.executors`)."""

from importlib.metadata import EntryPoint, entry_points

GROUP = "millstream.executors"
BY_FILE = {"model.onnx": "onnx", "model.pt2": "torch", "model.pt": "torch", "model.py": "python"}
"""The model's file -> the executor that runs it."""
SERVERS = ("kserve", "openai")
"""Millstream's own executors that need no model file, because the model is on a server."""
MLFLOW = "mlflow"
"""Runs what MLflow's file MLmodel describes."""
OWN = (*dict.fromkeys(BY_FILE.values()), *SERVERS, MLFLOW)


def installed() -> dict[str, EntryPoint]:
    """The executors of other packages by name. Millstream's own names can't be replaced. This reads packages' metadata."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in OWN}


def is_known(name: str) -> bool:
    """Whether there is an executor of this name."""
    return name in OWN or name in installed()


def all_names() -> list[str]:
    """All names, for messages."""
    return [*OWN, *sorted(installed())]
