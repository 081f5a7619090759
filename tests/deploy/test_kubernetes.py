"""The Deployment in docs/running.md fits the image, the command line and the defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from millstream.consumers.cli.main import command_line
from millstream.pipeline.sections import Limits

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pod() -> dict[str, Any]:
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    match = re.search(r"## Kubernetes\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    assert match is not None
    found: dict[str, Any] = yaml.safe_load(match[1])["spec"]["template"]["spec"]
    return found


def test_worker_may_drain_before_it_is_killed(pod: dict[str, Any]) -> None:
    assert pod["terminationGracePeriodSeconds"] > Limits.model_validate({}).drain_timeout + 10


def test_probes_are_at_the_port_that_the_command_serves(pod: dict[str, Any]) -> None:
    [worker] = pod["containers"]
    args = command_line().parse_args(worker["args"])
    [port] = worker["ports"]
    assert (args.metrics_port, args.metrics_host) == (port["containerPort"], "0.0.0.0")
    paths = {name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {get["port"] for get in paths.values()} == {port["name"]}
    assert [get["path"] for get in paths.values()] == ["/live", "/live", "/ready"]


def test_image_runs_the_same_command_as_the_same_user(pod: dict[str, Any]) -> None:
    image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    [worker] = pod["containers"]
    listed = ", ".join(f'"{each}"' for each in worker["args"])
    assert f"CMD [{listed}]" in image
    assert f"--uid {pod['securityContext']['runAsUser']} millstream" in image
    [mount] = worker["volumeMounts"]
    assert f"WORKDIR {mount['mountPath']}\n" in image
