"""Tiny Python models, written into a model repository."""

from pathlib import Path
from textwrap import dedent, indent

from millstream.inference.repository import ModelVersion, load_version
from tests.inference.doubling import DOUBLING


def write_python(
    repository: Path, code: str, *, config: str = DOUBLING, name: str = "m", **siblings: str
) -> ModelVersion:
    """Write a model's `model.py` and the files beside it, version 1, and load what the repository says of it."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(dedent(code), encoding="utf-8")
    for sibling, text in siblings.items():
        (folder / f"{sibling}.py").write_text(dedent(text), encoding="utf-8")
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    return load_version(repository, name)


def predicting(repository: Path, body: str, *, config: str = DOUBLING) -> ModelVersion:
    """A model whose `predict(self, inputs)` has this body."""
    code = "import numpy as np\n\nclass Model:\n    def __init__(self, folder, device):\n        self.calls = 0\n\n"
    code += "    def predict(self, inputs):\n" + indent(dedent(body).strip(), " " * 8) + "\n"
    return write_python(repository, code, config=config)
