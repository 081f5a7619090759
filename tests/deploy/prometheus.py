"""Debian's Prometheus as a child process of the tests, with our rules in a shorter time."""

from __future__ import annotations

import json
import re
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Self

import yaml

from millstream.topics.local.child import end, start
from millstream.topics.local.ports import free_ports
from tests.broker.clients import wait_until
from tests.deploy.declared import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

MISSING = None if shutil.which("prometheus") else "needs prometheus: apt-get install --no-install-recommends prometheus"
_EVERY = "1s"  # between scrapes, and what one may take
_WINDOWS = {"1m": "10s", "2m": "10s", "5m": "20s", "10m": "90s"}


class Prometheus:
    """A server that scrapes each second; alerts wait a second instead of minutes. A context manager."""

    def __init__(self, folder: Path, targets: Mapping[str, int]) -> None:
        """Args:
        folder: of its own, for configuration and data.
        targets: job -> port on this machine.
        """
        folder.mkdir()
        for file in ("recording.yml", "alerts.yml"):
            (folder / file).write_text(hastened((DEPLOY / "prometheus" / file).read_text("utf-8")), "utf-8")
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
        config["global"] = {"scrape_interval": _EVERY, "scrape_timeout": _EVERY, "evaluation_interval": _EVERY}
        config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in targets]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
        (self._port,) = free_ports(1)
        self._log = folder / "prometheus.log"
        options = [f"--web.listen-address=127.0.0.1:{self._port}", "--config.file=prometheus.yml"]
        self._process = start(["prometheus", *options, "--storage.tsdb.path=data"], self._log, cwd=folder)

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an instant query, each with `metric` and `value`."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                samples: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return samples
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from None

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {sample["metric"]["alertname"] for sample in self.query('ALERTS{alertstate="firing"}')}

    def wait_firing(self, *alerts: str, timeout: float = 60) -> None:
        """Wait until all of these have fired, each for a moment at least."""
        missing = set(alerts)

        def fired() -> bool:
            missing.difference_update(self.firing())
            return not missing

        self.wait_for(fired, f"alerts {', '.join(alerts)}", timeout)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Wait for something to be seen."""
        assert self._process.poll() is None, self._log.read_text("utf-8")
        try:
            wait_until(condition, timeout, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error} Firing: {sorted(self.firing())}.") from None

    def __enter__(self) -> Self:
        try:
            wait_until(self._ready, 30, f"Prometheus to be ready; its log: {self._log}")
        except BaseException:
            end(self._process, signal.SIGTERM)
            raise
        return self

    def _ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text("utf-8")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._process, signal.SIGTERM)


def hastened(rules: str) -> str:
    """The same rules with shorter windows, and a second to wait for."""
    text = re.sub(r"\bfor: \w+", "for: 1s", rules)
    return re.sub(r"\[(\w+)\]", lambda found: f"[{_WINDOWS[found[1]]}]", text)
