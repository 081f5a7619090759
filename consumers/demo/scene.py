"""Sets up the demo: a broker, and a copy of the flights example with one pipeline for each model version."""

import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from millstream.consumers.demo.example import example_folder
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ANSWER_TIMEOUT, Admin, create, roles
from millstream.topics.embedded import EmbeddedBroker

log = logging.getLogger(__name__)

PARTITIONS = EmbeddedBroker.partitions  # of each topic, on any broker
# If a fetch finds no records, the embedded broker responds only after the whole wait, even if records arrive meanwhile. With the
# client's default of 500 ms, events wait 250 ms on average. With 5 ms, they wait at most 5 ms.
EMBEDDED_READING = {"fetch.wait.max.ms": 5}


@dataclass(frozen=True, slots=True)
class Scene:
    """The setup of one run."""

    folder: Path  # temporary
    bootstrap: str
    pipelines: dict[int, Pipeline]  # by model version; each has its own consumer group and reads the same events
    embedded: bool
    created: list[str]  # topics to delete at the end
    groups: list[str] = field(default_factory=list)  # consumer groups to delete, beside those of the pipelines

    @property
    def client(self) -> dict[str, Any]:
        """Settings of a Kafka client."""
        return {"bootstrap.servers": self.bootstrap}

    @property
    def reading_client(self) -> dict[str, Any]:
        """Settings of a Kafka consumer."""
        return {**self.client, **(EMBEDDED_READING if self.embedded else {})}

    @property
    def input_topic(self) -> str:
        """The topic of the events."""
        return next(iter(self.pipelines.values())).input.topics[0]


@contextmanager
def scene(
    versions: Sequence[int],
    bootstrap: str | None,
    *,
    partitions: int = PARTITIONS,
    sections: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[Scene]:
    """Set up; at the end, delete the folder, topics and groups.

    Args:
        versions: the model versions; each gets a pipeline.
        bootstrap: the broker to use; None: a broker inside this process.
        partitions: number of partitions of each topic, if `bootstrap` is given.
        sections: sections of the pipeline file that replace the example's.

    Raises:
        BrokerUnreachableError, TopicError: the given broker can't be reached, or doesn't let the demo create topics.
    """
    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as folder:
        example = Path(folder) / "flights"
        shutil.copytree(example_folder(), example, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        if bootstrap is None:
            with EmbeddedBroker() as broker:
                pipelines = _pipelines(
                    example,
                    versions,
                    {"kafka": {"bootstrap": broker.bootstrap, "client": EMBEDDED_READING}, **sections},
                )
                broker.ensure_topics(_topics(pipelines))
                yield Scene(example, broker.bootstrap, pipelines, embedded=True, created=[])
            return
        # Use names that only this run has: the broker may already have topics with the example's names.
        run = f"demo-{uuid.uuid4().hex[:6]}-"
        placed = Scene(
            example,
            bootstrap,
            _pipelines(example, versions, {"kafka": {"bootstrap": bootstrap}, **sections}, run),
            embedded=False,
            created=[],
        )
        try:
            for pipeline in placed.pipelines.values():
                placed.created.extend(create(Admin(placed.client), pipeline, partitions=partitions))
            yield placed
        finally:
            if placed.created:
                _delete(placed)


def _pipelines(
    example: Path, versions: Sequence[int], sections: Mapping[str, object], prefix: str = ""
) -> dict[int, Pipeline]:
    return {version: _pipeline(example, version, sections, prefix) for version in versions}


def _pipeline(example: Path, version: int, sections: Mapping[str, object], prefix: str) -> Pipeline:
    content = yaml.safe_load((example / "pipeline.yaml").read_text(encoding="utf-8"))
    name = f"{prefix}{content['name']}-v{version}"
    content["name"] = name
    content |= sections
    content["input"]["topics"] = [f"{prefix}{topic}" for topic in content["input"]["topics"]]
    content["output"]["topic"] = f"{name}-predictions"
    content["dead_letters"]["topic"] = f"{name}-dead-letters"
    content["model"]["version"] = version
    path = example / f"pipeline-v{version}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return load_pipeline(path, {})


def _topics(pipelines: dict[int, Pipeline]) -> list[str]:
    return list(dict.fromkeys(name for pipeline in pipelines.values() for _, name in roles(pipeline)))


def _delete(placed: Scene) -> None:
    """Delete topics and groups. If that fails, log a warning and go on."""
    admin = Admin(placed.client)
    try:
        groups = [*(pipeline.group_id for pipeline in placed.pipelines.values()), *placed.groups]
        waiting = {
            **admin.delete_topics(placed.created, request_timeout=ANSWER_TIMEOUT),
            **admin.delete_consumer_groups(groups, request_timeout=ANSWER_TIMEOUT),
        }
    except Exception as error:  # the Kafka client's own exception class, which only `topics` may import
        log.warning("the demo's topics and groups were not deleted: %s", error)
        return
    for name, future in waiting.items():
        try:
            future.result()
        except Exception as error:
            log.warning("%s was not deleted: %s", name, error)
