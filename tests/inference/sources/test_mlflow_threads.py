"""Several threads use MLflow's client, which takes its credentials from the process's environment."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

from millstream.inference.sources.mlflow_registry import MlflowRegistry

if TYPE_CHECKING:
    import pytest

TOKEN = "MLFLOW_TRACKING_TOKEN"


class Page(list[object]):
    """Of the versions; there is no other."""

    token = ""


class Client:
    """As MlflowClient: it lists aliases once versions are asked for, and versions when it may."""

    asked, begun, goes_on = threading.Event(), threading.Event(), threading.Event()
    found: list[str | None] = []  # noqa: RUF012  (the token of each request)

    def search_model_versions(self, *_: object, **__: object) -> list[object]:
        self.begun.set()
        assert self.goes_on.wait(30)
        self.found.append(os.environ.get(TOKEN))
        return Page()

    def get_registered_model(self, _: str) -> SimpleNamespace:
        self.asked.set()
        assert self.begun.wait(30)
        return SimpleNamespace(aliases={})


def test_request_that_ends_takes_no_credentials_from_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    where = SimpleNamespace(
        MlflowClient=Client, MlflowException=LookupError, get_registry_uri=lambda: "http://127.0.0.1:1"
    )
    monkeypatch.setitem(sys.modules, "mlflow", where)
    monkeypatch.setitem(sys.modules, "mlflow.artifacts", where)
    monkeypatch.delenv(TOKEN, raising=False)
    registry = MlflowRegistry("models:/", {}, {"tracking_uri": "http://127.0.0.1:1", "token": "secret"}, "")
    first, second = (threading.Thread(target=ask, args=("m",)) for ask in (registry.aliases, registry.versions))
    first.start()
    assert Client.asked.wait(30)
    second.start()
    first.join()
    Client.goes_on.set()
    second.join()
    assert (Client.found, os.environ.get(TOKEN)) == (["secret"], None)
