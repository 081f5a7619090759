"""The Deployment, the unit of systemd and the image in docs/running.md fit the command line and the defaults."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from millstream.consumers.cli.main import command_line
from millstream.consumers.errors import NEEDS_CHANGE
from millstream.consumers.supervision.local_run import EXIT_TIMEOUT
from millstream.pipeline.sections import Limits

ROOT = Path(__file__).resolve().parents[2]


def example(section: str, language: str) -> str:
    """The first example of this language in a section of the page."""
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    match = re.search(rf"\n## {section}\n.*?```{language}\n(.*?)```", page, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture
def pod() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(example("Kubernetes", "yaml"))["spec"]["template"]["spec"]
    return found


def test_worker_may_drain_before_it_is_killed(pod: dict[str, Any]) -> None:
    assert pod["terminationGracePeriodSeconds"] > Limits.model_validate({}).drain_timeout + 10


def test_probes_are_at_the_port_that_the_command_serves(pod: dict[str, Any]) -> None:
    [worker] = pod["containers"]
    args = command_line().parse_args(worker["args"])
    [port] = worker["ports"]
    assert (args.metrics_port, args.metrics_host) == (port["containerPort"], "0.0.0.0")
    paths = {name: worker[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
    assert {get["port"] for get in paths.values()} == {port["name"]}
    assert [get["path"] for get in paths.values()] == ["/live", "/ready"]


@pytest.mark.parametrize(
    "image", [(ROOT / "deploy" / "Dockerfile").read_text("utf-8"), example("Kubernetes", "dockerfile")]
)
def test_image_runs_the_same_command_as_the_same_user(pod: dict[str, Any], image: str) -> None:
    [worker] = pod["containers"]
    listed = ", ".join(f'"{each}"' for each in worker["args"])
    assert f"CMD [{listed}]" in image
    assert f"--uid {pod['securityContext']['runAsUser']} millstream" in image
    [mount] = worker["volumeMounts"]
    assert f"WORKDIR {mount['mountPath']}\n" in image


def test_unit_of_systemd_drains_and_restarts_where_that_helps() -> None:
    unit = ConfigParser(interpolation=None)
    unit.read_string(example("systemd", "ini"))
    service = unit["Service"]
    program, *args = service["ExecStart"].split()
    assert (Path(program).name, args[0]) == ("millstream", "run")
    command_line().parse_args(args)
    assert int(service["TimeoutStopSec"]) > Limits.model_validate({}).drain_timeout + EXIT_TIMEOUT
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", f"2 {NEEDS_CHANGE}")
