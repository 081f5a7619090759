"""docker-compose.yml and the image: what they name is there, and the commands are ones that the CLI takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from millstream.consumers.cli import main
from millstream.consumers.supervision.local_run import EXIT_TIMEOUT
from millstream.pipeline.loading import load_pipeline
from tests.deploy.compose import ROOT, command_of, ours, path_here, services

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in ours() if "entrypoint" not in services()[name]])
def test_commands_are_ones_that_the_cli_takes(name: str) -> None:
    program, command, *rest = command_of(name)
    assert program == "millstream"
    words = [path_here(word, name) for word in rest]
    args = main.command_line([command]).parse_args([command, *words])
    assert (args.pipeline / "pipeline.yaml").is_file()


def test_the_image_runs_a_command_that_the_cli_takes() -> None:
    words = re.findall(r'"([^"]+)"', DOCKERFILE.rpartition("\nCMD ")[2].splitlines()[0])
    args = main.command_line([words[0]]).parse_args(words)
    assert (args.metrics_port, args.metrics_host) == (9108, "0.0.0.0")
    assert "127.0.0.1:9108/live" in DOCKERFILE
    assert DOCKERFILE.index("USER millstream") > DOCKERFILE.index("AS runtime")
    assert DOCKERFILE.rpartition("FROM ")[2].startswith("runtime AS cpu")  # what a build without --target makes


def test_what_the_image_copies_is_there() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    for file in re.findall(r"-r (\S+)", DOCKERFILE):
        assert (ROOT / file).is_file()


def test_what_services_mount_and_wait_for_is_there() -> None:
    for name, service in services().items():
        for volume in service.get("volumes", []):
            assert (ROOT / volume.split(":")[0]).is_dir(), f"{name}: {volume}"
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services(), name
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services()[needed]
            if how["condition"] == "service_completed_successfully":
                assert services()[needed]["restart"] == "on-failure"
    assert {services()[name]["build"]["target"] for name in ours() if "build" in services()[name]} == {"demo"}


def test_the_image_of_the_services_has_what_their_producer_needs() -> None:
    assert DOCKERFILE.partition("FROM runtime AS demo\n")[2].startswith("COPY --from=build-demo /venv /venv\n")
    assert "-r requirements/demo.txt" in DOCKERFILE.partition("FROM build AS build-demo\n")[2].partition("FROM")[0]


def test_prometheus_scrapes_what_the_services_serve() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text("utf-8"))
    targets = [
        target for job in config["scrape_configs"] for entry in job["static_configs"] for target in entry["targets"]
    ]
    serving = {}
    for name in ours():
        words = command_of(name)
        if "--metrics-port" in words:
            serving[name] = words[words.index("--metrics-port") + 1]
            assert words[words.index("--metrics-host") + 1] == "0.0.0.0"  # Prometheus is another container
    assert targets == [f"{name}:{port}" for name, port in serving.items()]
    for name, port in serving.items():
        probe = services()[name].get("healthcheck", {}).get("test") or [DOCKERFILE]
        assert f"127.0.0.1:{port}/live" in probe[-1]


def test_the_pipeline_reads_with_the_services_environment() -> None:
    environment = {**services()["millstream"]["environment"]}
    assert environment["KAFKA_BOOTSTRAP"] in services()["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    pipeline = load_pipeline(ROOT / "deploy" / "compose" / "pipeline.yaml", environment)
    repository = Path(path_here(str(pipeline.model.repository), "millstream"))
    for version in (pipeline.model.version, *(shadow.version for shadow in pipeline.shadows)):
        assert (repository / pipeline.model.name / str(version) / "model.onnx").is_file()
    grace = services()["millstream"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) > pipeline.limits.drain_timeout + EXIT_TIMEOUT
