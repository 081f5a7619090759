"""What is impossible together in the sections that compare models, though each value is right by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.schemas.wording import Loc, dotted
from millstream.topics.yaml_places import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.topics.pipeline import Pipeline

_ROLES = {"primary", "canary"}


def shadow_conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    """Yield the places of such values, and what is wrong."""
    if not pipeline.shadows and ("comparison",) in document.lines:
        yield (
            ("comparison",),
            "nothing is compared without a shadow. Write `shadows:` and under it `- version: 2`, say.",
        )
    names = [shadow.name for shadow in pipeline.shadows]
    primary = (pipeline.model.name, pipeline.model.version)
    for number, shadow in enumerate(pipeline.shadows):
        place = ("shadows", number)
        if pipeline.shadow_model(shadow) == primary:
            yield (
                (*place, "version"),
                f"version {shadow.version} is the primary's (model.version): it would be compared with itself. Name another.",
            )
        if shadow.name in names[:number]:
            yield (
                document.known((*place, "name")),
                f"another shadow is called {shadow.name} too. Give each a `name:` of its own.",
            )
        if shadow.name in _ROLES:
            yield (*place, "name"), f"{shadow.name} is a role of its own. Choose another name."
    yield from _shared_topics(pipeline, document)


def _shared_topics(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    taken = dict.fromkeys(pipeline.input.topics, "input.topics")
    taken |= {pipeline.output.topic: "output.topic", pipeline.dead_letters.topic: "dead_letters.topic"}
    asked: list[tuple[Loc, str]] = []
    if pipeline.shadows:
        asked.append((("comparison", "topic"), pipeline.comparison.topic))
        asked.append((("comparison", "evaluations"), pipeline.comparison.evaluations))
    if pipeline.labels:
        asked.append((("labels", "topic"), pipeline.labels.topic))
    for place, topic in asked:
        if topic in taken:
            at = next(at for at in (place, place[:1], ("shadows",), ()) if at in document.lines)
            yield at, f"{topic} is also {taken[topic]}. Give each a topic of its own."
        taken[topic] = dotted(place)
