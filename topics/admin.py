"""Reads the state and the settings of topics, and creates topics."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from shlex import quote
from threading import Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.wording import meant
from millstream.topics.answer_watch import QUIET_SECONDS, AnswerWatch
from millstream.topics.client_log import client_log
from millstream.topics.errors import TopicError
from millstream.topics.partitions import PERMISSIONS
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.unreachable import cause_of, unreachable

log = logging.getLogger(__name__)

ANSWER_TIMEOUT = 10.0  # seconds
RESOLVE_TIMEOUT = 1.0  # seconds, within which a name server says that it doesn't know a host
UNRESOLVED = {KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN}
"""All that a client reports if it finds no address for any of its hosts."""
BROKER_DEFAULT = -1
# A dead letter has its event, the event's key a second time, and a few more fields. If an event just fits into its topic, its
# dead letter must fit too. Otherwise no worker would ever get past it.
DEAD_LETTER_OVERHEAD = 65_536  # bytes of these fields, generously
DEFAULT_MAX_BYTES = 1_048_588  # Kafka's own default for `max.message.bytes`
EVALUATIONS = "evaluations"  # the role of the topic with evaluations
ROLLOUT = "rollout"  # the role of the control topic
ROLLOUT_EVALUATIONS = "rollout evaluations"
FROM_ELSEWHERE = {"input", "labels"}
"""The roles of topics that others write to. Such a topic may be there under another name."""
SEGMENT_BYTES = "segment.bytes"
_REFUSED_SETTINGS = {KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG}
HISTORY_MS = (
    30 * 24 * 3_600_000
)  # how long each change of a rollout is kept at least, although only the newest is needed


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic of a pipeline."""

    role: str  # input, output or dead letters
    name: str
    partitions: int | None  # None: the topic does not exist
    replication_factor: int | None


def roles(pipeline: Pipeline) -> list[tuple[str, str]]:
    """The pipeline's topics: (role, name)."""
    return [
        *(("input", topic) for topic in pipeline.input.topics),
        ("output", pipeline.output.topic),
        ("dead letters", pipeline.dead_letters.topic),
        *([("comparisons", pipeline.comparison.topic)] if pipeline.shadows else []),
        *([(EVALUATIONS, pipeline.comparison.evaluations)] if pipeline.shadows else []),
        *([("labels", pipeline.labels.topic)] if pipeline.labels else []),
        *([(ROLLOUT, pipeline.rollout.topic)] if pipeline.rollout else []),
        *([(ROLLOUT_EVALUATIONS, pipeline.rollout.evaluations)] if pipeline.rollout else []),
    ]


class Admin(AdminClient):
    """A connection to the brokers. It connects in the background, and the functions below wait for that.

    It remembers why it can't connect, because a call that fails for this doesn't give the reason.
    """

    def __init__(self, client: Mapping[str, Any], say: Callable[[str], object] = lambda _: None) -> None:
        """Args:
        client: the settings of a Kafka client, with `bootstrap.servers`.
        say: tells the person who waits that no broker answers, and that one answers again.
        """
        self.bootstrap = str(client["bootstrap.servers"])
        self.watch = AnswerWatch(self.bootstrap, say)
        self._told: list[KafkaError] = []
        settings: dict[str, Any] = {**QUICK_CONNECT, **client, "error_cb": self._told.append}
        super().__init__(settings, logger=client_log("admin"))

    @property
    def causes(self) -> Sequence[KafkaError]:
        """The errors that the client has reported, the latest one last."""
        self.poll(0)
        return self._told


def states(admin: Admin, names: Iterable[tuple[str, str]]) -> list[TopicState]:
    """The state of the topics (role, name) on the broker.

    Raises:
        BrokerUnreachableError: no broker answers.
    """
    found = _topics(admin)
    return [
        TopicState(role, name, len(found[name].partitions), len(found[name].partitions[0].replicas))
        if name in found and found[name].partitions
        else TopicState(role, name, None, None)
        for role, name in names
    ]


def require(admin: Admin, pipeline: Pipeline, *, but: Collection[str] = ()) -> None:
    """Check that every topic of the pipeline exists, but those with these roles.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicError: naming each that is missing, and what to do.
    """
    asked = [(role, name) for role, name in roles(pipeline) if role not in but]
    missing = [state for state in states(admin, asked) if state.partitions is None]
    if missing:
        names = ", ".join(f"{state.name} ({state.role})" for state in missing)
        others = _topics(admin).keys() - {name for _, name in roles(pipeline)}
        near = "".join(meant(state.name, others) for state in missing if state.role in FROM_ELSEWHERE)
        raise TopicError(
            f"these topics of {pipeline.path.name} do not exist on {admin.bootstrap}, or may not be seen by this "
            f"user: {names}.{near} Create them: millstream topics create {quote(str(pipeline.named))}"
        )


def refuse_unfit_broker(admin: Admin, pipeline: Pipeline) -> None:
    """Check that the broker supports what the pipeline needs.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicError: the pipeline needs exactly once, and this is the embedded broker.
    """
    if pipeline.delivery == "exactly_once" and _is_embedded(_metadata(admin)):
        raise TopicError(
            f"{pipeline.path.name} asks for `delivery: exactly_once`, but {admin.bootstrap} is the embedded broker, "
            f"which does not keep the offsets of a transaction. Use a real broker (`millstream broker` with Java 17 and Maven), "
            f"or at_least_once."
        )


def create(
    admin: Admin,
    pipeline: Pipeline,
    *,
    partitions: int = BROKER_DEFAULT,
    replication: int = BROKER_DEFAULT,
) -> list[str]:
    """Create the pipeline's topics that don't exist yet, all with the same number of partitions; the control topic has one.

    By default, they have as many as the input topic, or the largest of several. If no input topic exists, they have as many as
    the output topic; if that doesn't exist either, it is the broker's default.

    Returns:
        the names of the created topics.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicError: the broker refused to create a topic.
    """
    metadata = _metadata(admin)
    there: dict[str, Any] = metadata.topics
    missing = [(role, name) for role, name in roles(pipeline) if name not in there]
    if not missing:
        return []
    if _is_embedded(metadata):  # it answers no request to create a topic, but creates each one that a client asks for
        for _, name in missing:
            admin.list_topics(name, timeout=ANSWER_TIMEOUT)
        return [name for _, name in missing]
    if partitions == BROKER_DEFAULT:
        alike = pipeline.input.topics if there.keys() & set(pipeline.input.topics) else [pipeline.output.topic]
        partitions = max((len(there[topic].partitions) for topic in alike if topic in there), default=partitions)
    room = max([DEFAULT_MAX_BYTES, *(_max_bytes(admin, topic) for topic in pipeline.input.topics if topic in there)])
    asked = [
        NewTopic(
            name,
            num_partitions=1 if role == ROLLOUT else partitions,
            replication_factor=replication,
            config=_settings(role, room),
        )
        for role, name in missing
    ]
    _create(admin, asked)
    made = [name for _, name in missing]
    _wait_for(made, admin)
    return made


def ensure(admin: Admin, wanted: Mapping[str, Mapping[str, str]], *, partitions: int, replication: int) -> None:
    """Create the wanted topics (name -> settings) that don't exist yet, and wait until the brokers know them.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicError: the broker refused one, or one is there with another number of partitions.
    """
    there = _topics(admin)
    for name in wanted.keys() & there.keys():
        if len(there[name].partitions) != partitions:
            raise TopicError(
                f"topic {name}: expected {partitions} partitions, found {len(there[name].partitions)}. "
                f"Stop all that uses it, delete it, and start again."
            )
    asked = [
        NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config))
        for name, config in wanted.items()
        if name not in there
    ]
    if asked:
        _create(admin, asked)
        _wait_for([topic.topic for topic in asked], admin)


def _create(admin: Admin, asked: list[NewTopic]) -> None:
    wanted, forbidden = {topic.topic: topic for topic in asked}, []
    for name, future in admin.create_topics(asked, request_timeout=ANSWER_TIMEOUT).items():
        try:
            future.result()
        except KafkaException as error:
            code, said = error.args[0].code(), error.args[0].str()
            config: dict[str, str] = wanted[name].config or {}
            if code in _REFUSED_SETTINGS and config.pop(SEGMENT_BYTES, None) is not None:
                _create(admin, [wanted[name]])  # if the setting was not the reason, it raises
                log.warning("topic %s is created without %s, which the broker refuses: %s", name, SEGMENT_BYTES, said)
            elif code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                forbidden.append(name)
            elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"topic {name} could not be created: {said.removesuffix('.')}.") from None
    if forbidden:
        raise TopicError(
            f"could not be created, because the user of `kafka.client` lacks the permission CREATE: topic "
            f"{', '.join(forbidden)}. Grant CREATE on them ({PERMISSIONS})."
        )


def _settings(role: str, room: int) -> dict[str, str]:
    """Settings of a new topic; `room`: bytes of the largest event."""
    if role == "dead letters":
        return {"max.message.bytes": str(2 * room + DEAD_LETTER_OVERHEAD)}
    if role == ROLLOUT:
        return {"cleanup.policy": "compact", "min.compaction.lag.ms": str(HISTORY_MS)}
    if role == ROLLOUT_EVALUATIONS:
        # Autopilot writes the same keys again and again. Only closed segments are compacted, and a reader reads all. Services for
        # Kafka refuse segments of less than 50 MiB, and some refuse the setting: the topic works without it, too.
        return {"cleanup.policy": "compact", SEGMENT_BYTES: str(64 * 1024**2)}
    return {"cleanup.policy": "compact"} if role == EVALUATIONS else {}


def _wait_for(names: Sequence[str], admin: Admin) -> None:
    """Wait until the brokers know the topics, a little later than the controller, which creates them."""
    until = time.monotonic() + ANSWER_TIMEOUT
    while time.monotonic() < until and not _topics(admin).keys() >= set(names):
        time.sleep(0.05)


def largest_records(admin: Admin, names: Iterable[str]) -> dict[str, int]:
    """`max.message.bytes` of each topic; Kafka's default if the user may not read it."""
    embedded = is_embedded(admin)
    return {name: DEFAULT_MAX_BYTES if embedded else _max_bytes(admin, name) for name in names}


def is_embedded(admin: Admin) -> bool:
    """Whether this is the embedded broker: it chooses the partitions of topics, and has no settings of them."""
    return _is_embedded(_metadata(admin))


def cleanup_policy(admin: Admin, topic: str) -> str | None:
    """`cleanup.policy` of a topic, such as `compact` or `compact,delete`; None if the user may not read it."""
    return None if is_embedded(admin) else _setting(admin, topic, "cleanup.policy")


def _max_bytes(admin: Admin, topic: str) -> int:
    largest = _setting(admin, topic, "max.message.bytes")
    if largest is None:  # the default is right for most topics
        log.warning("%s", no_settings(topic))
    return int(largest or DEFAULT_MAX_BYTES)


def no_settings(topic: str) -> str:
    """What happens where the user may not read a topic's settings."""
    return (
        f"the settings of topic {topic} can't be read: grant DESCRIBE_CONFIGS on it to the user of `kafka.client`. Until then, "
        f"{DEFAULT_MAX_BYTES:,} bytes count as its `max.message.bytes`, and a record that it refuses as too large ends the "
        "process that wrote it"
    )


def _setting(admin: Admin, topic: str, name: str) -> str | None:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    try:
        value: str | None = admin.describe_configs([asked], request_timeout=ANSWER_TIMEOUT)[asked].result()[name].value
    except (KafkaException, KeyError):
        return None
    return value


def _topics(admin: Admin) -> dict[str, Any]:
    topics: dict[str, Any] = _metadata(admin).topics
    return topics


def _is_embedded(metadata: Any) -> bool:
    """Whether this is librdkafka's mock cluster, which does not support requests for settings."""
    return str(metadata.cluster_id).startswith("mockCluster")


def _metadata(admin: Admin) -> Any:
    try:
        return _listed(admin)
    except KafkaException as error:
        raise unreachable(admin.bootstrap, error.args[0], admin.causes) from None


def _listed(admin: Admin) -> Any:
    """The metadata. Raises KafkaException: no broker answers, or no host has an address."""
    began = time.monotonic()
    said = None
    while said is None or time.monotonic() - began < QUIET_SECONDS:
        try:
            return admin.list_topics(timeout=RESOLVE_TIMEOUT)
        except KafkaException as error:
            if {cause.code() for cause in admin.causes} == UNRESOLVED:
                raise
            said = error.args[0]
    admin.watch.waits(began, time.monotonic(), ANSWER_TIMEOUT, cause_of(said, admin.causes))
    found = _listed_by_a_thread(admin)
    admin.watch.answered(time.monotonic())
    return found


def _listed_by_a_thread(admin: Admin) -> Any:
    """As `_listed`, within `ANSWER_TIMEOUT`. Ctrl-C ends it at once: while the client itself waits, Python handles no signal."""
    answer: SimpleQueue[Any] = SimpleQueue()

    def ask() -> None:
        try:
            answer.put(admin.list_topics(timeout=ANSWER_TIMEOUT))
        except Exception as error:  # the other thread would wait for ever
            answer.put(error)

    Thread(target=ask, name="topics", daemon=True).start()
    found = answer.get()
    if isinstance(found, Exception):
        raise found
    return found
