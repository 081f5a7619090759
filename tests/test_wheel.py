"""The wheel in an environment of its own, beside packages of a user's team that have the names of our folders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[1]
TEAM = ("consumers", "inference", "pipeline", "schemas", "topics")
PIPELINE = """\
name: numbers
kafka: {bootstrap: "localhost:9092"}
input: {topic: numbers, format: json, schema: number, event_id: id}
model: {name: scale}
output: {topic: predictions, format: json}
dead_letters: {topic: dead}
"""
SCHEMA = (
    '{"type": "record", "name": "N", "fields": [{"name": "id", "type": "string"}, {"name": "x", "type": "double"}]}'
)
CONFIG = "inputs: [{tensor: x, fields: [x], dtype: float64, shape: [1]}]\noutputs: [{tensor: y}]\n"
MODEL = """\
import sys
import consumers, inference, schemas, topics

class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        print("scales", consumers.SCALE, inference.SCALE, schemas.SCALE, topics.SCALE, file=sys.stderr)
        return {"y": inputs["x"] * schemas.SCALE}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with our dependencies from the environment of the tests."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    packages = installed_into(folder / "venv")
    before = {path.name for path in packages.iterdir()}
    run([str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--no-deps", str(wheel)])
    (folder / "venv" / "added").write_text(" ".join({path.name for path in packages.iterdir()} - before))
    # A .pth file in the folder that this one names is not read, so the checkout itself is not on the path.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for name in TEAM:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"SCALE = {len(name)}\n")
    return folder / "venv"


def installed_into(environment: Path) -> Path:
    """The environment's site-packages."""
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment), "platbase": str(environment)}))


def run(command: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH may name the checkout, which would hide the wheel.
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_wheel_puts_one_package_into_the_environment(environment: Path) -> None:
    package, information = sorted((environment / "added").read_text().split())
    assert package == "millstream"
    assert information.startswith("millstream-")
    assert information.endswith(".dist-info")


def test_one_wheel_serves_every_python_of_a_platform(environment: Path) -> None:
    (wheel,) = environment.parent.glob("*.whl")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")


def test_wheel_brings_every_extension_compiled(environment: Path) -> None:
    """So a machine that has only the wheel needs no compiler."""
    package = installed_into(environment) / "millstream"
    sources = {path.stem for path in package.rglob("*.c")}
    assert sources == {path.stem.removeprefix("lib") for path in package.rglob("lib*.so")}
    assert len(sources) == 7


def test_model_imports_the_packages_of_its_team(environment: Path, tmp_path: Path) -> None:
    version = tmp_path / "models" / "scale" / "1"
    version.mkdir(parents=True)
    (tmp_path / "schemas").mkdir()
    for file, text in {
        tmp_path / "pipeline.yaml": PIPELINE,
        tmp_path / "schemas" / "1-number.avsc": SCHEMA,
        version / "config.yaml": CONFIG,
        version / "model.py": MODEL,
    }.items():
        file.write_text(text, encoding="utf-8")
    for start in (["bin/millstream"], ["bin/python", "-P", "-m", "millstream"]):
        done = run([str(environment / start[0]), *start[1:], "check", "--offline", str(tmp_path)], tmp_path.parent)
        assert "ok        a worker would start" in done.stdout
        assert "scales 9 9 7 6" in done.stderr


def test_readme_names_every_dependency_for_an_environment_without_cuda() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^pip install (onnxruntime .+)$", readme, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[^\w-]", dependency)[0] for dependency in project["dependencies"]}
    assert set(named.split()) == wanted - {"onnxruntime-gpu"}


def test_license_travels_with_the_wheel(environment: Path) -> None:
    (information,) = installed_into(environment).glob("millstream-*.dist-info")
    assert "License-Expression: Apache-2.0\n" in (information / "METADATA").read_text()
    assert "Version 2.0, January 2004" in (information / "licenses" / "LICENSE").read_text()


def test_pages_and_dashboards_travel_with_the_wheel(environment: Path, tmp_path: Path) -> None:
    command = str(environment / "bin" / "millstream")
    listed = run([command, "docs"]).stdout
    assert f"They lie in {installed_into(environment) / 'millstream' / 'docs'}." in listed
    assert run([command, "docs", "runbook#millstreamdown"]).stdout.startswith("## MillstreamDown")
    run([command, "dashboards", "--output", str(tmp_path / "monitoring")])
    assert (tmp_path / "monitoring" / "prometheus" / "alerts.yml").is_file()


def test_example_travels_with_the_wheel(environment: Path, tmp_path: Path) -> None:
    run([str(environment / "bin" / "millstream"), "init", str(tmp_path / "mine")])
    assert (tmp_path / "mine" / "pipeline.yaml").is_file()
