"""Versions from a real repository, beside the one that the worker started with."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from millstream.consumers.serving.wanted_now import Target
from millstream.consumers.worker.plan import make_plan
from millstream.consumers.worker.version_loader import VersionLoader, primary_of
from millstream.inference.executors.opened import OpenedModel
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.consumers.service import flights_service
from tests.inference.sources.places import Place

if TYPE_CHECKING:
    from pathlib import Path

NAME = "flights-delay"
NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A repository at a URL with version 1, and `pipeline.yaml` beside it."""
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    place = Place(f"file://{tmp_path}/remote")
    place.put_folder(tmp_path / "models")
    shutil.rmtree(tmp_path / "models")
    place.put(f"{NAME}/aliases.yaml", "champion: 1\n")
    document = yaml.safe_load(service.file.read_text("utf-8"))
    document["model"] = {"name": NAME, "version": "champion", "cache": "cache", "repository": place.url}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return place


def test_version_that_changed_in_the_store_is_not_the_one_of_the_start(place: Place, tmp_path: Path) -> None:
    plan = make_plan(load_pipeline(tmp_path / "pipeline.yaml", {}))
    source, loader = plan.models.source, VersionLoader(plan, primary_of(plan))
    first = loader.first(OpenedModel(plan.model.id, plan.executors))
    assert loader.started_with(Target(1, source.versions(NAME)[1]), first)
    place.put(f"{NAME}/1/notes.txt", "trained anew")
    changed = Target(1, source.versions(NAME)[1])
    assert not loader.started_with(changed, first)
    new = loader.load(changed, first)
    assert new.folder is not None
    assert (new.folder / "notes.txt").is_file()
    assert new.folder != first.folder
    loader.unload(new)
    loader.unload(first)
