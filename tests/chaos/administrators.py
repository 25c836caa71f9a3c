"""Administrators of a cluster that is being broken: they create, alter, grow and delete topics through any broker.

Each has topics of its own and does one thing after the other, so that it knows what each may have become.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from diskless_core.protocol.errors import ErrorCode
from tests.chaos.clients import Clock
from tests.chaos.history import History
from tests.chaos.topic_model import MAX_PENDING, Beliefs, Change, Kind, Topic
from tests.support.admin_requests import (
    SET,
    TOPIC,
    create_partitions_request,
    describe_configs_request,
    grown,
    incremental_request,
)
from tests.support.requests import CREATE_TOPICS_VERSION, LIST_OFFSETS_VERSION, new_topic
from tests.support.wire import WireClient

PREFIX = "administered-"
AGREE_S = 120.0
"""How long brokers may take to agree once nothing is wrong any more."""

_TIMEOUT_MS = 10_000
_PATIENCE_S = 12.0
_LOOK_S = 30.0
_AGAIN_S = 0.5
_PAUSE_S = (0.0, 1.5)
_CHANGES_OF_A_TOPIC = 8
_MOST_PARTITIONS = 6
_LATEST = -1
# Settings that tell which change made a topic what it is; neither matters to topics without records.
_BIRTH, _BIRTH_BASE = "max.message.bytes", 1_000_000
_ALTERED, _ALTERED_BASE = "retention.ms", 1_000_000_000

Ports = Callable[[], Sequence[int]]
"""Where brokers take clients, on loopback."""


class Administrator:
    """Attributes:
    topics: what it believes of each of its topics.
    answered_s: when it was last told that something is done, or why not.
    """

    def __init__(self, number: int, ports: Ports, numbers: Iterator[int], history: History, clock: Clock) -> None:
        self.topics: dict[str, Beliefs] = {}
        self.answered_s = 0.0
        self._name = f"administrator {number}"
        self._names = (f"{PREFIX}{number}-{one}" for one in count())
        self._ports = ports
        self._numbers = numbers
        self._history, self._clock = history, clock
        self._random = random.Random(self._name)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            name = next(self._names)
            beliefs = self.topics[name] = Beliefs()
            for _ in range(_CHANGES_OF_A_TOPIC):
                if self._stopping.is_set() or beliefs.pending >= MAX_PENDING:
                    break
                self._change(name, beliefs)
                self._stopping.wait(self._random.uniform(*_PAUSE_S))

    def _change(self, name: str, beliefs: Beliefs) -> None:
        change = self._draw(beliefs)
        error = self._ask(name, change)
        if error not in (None, ErrorCode.NOT_CONTROLLER):
            self.answered_s = self._clock()
        wrong = beliefs.heard(change, error)
        if wrong is not None:
            self._history.complain(self._name, f"{name}: change {change.number}, {wrong}")

    def _draw(self, beliefs: Beliefs) -> Change:
        number = next(self._numbers)
        existing = [state for state in beliefs.states() if state is not None]
        if not existing or self._random.random() < 0.15:
            return Change(number, Kind.CREATE, self._random.randint(1, 3))
        kind = self._random.choice([Kind.ALTER, Kind.ALTER, Kind.GROW, Kind.GROW, Kind.DELETE])
        most = max(state.partitions for state in existing)
        return Change(number, kind, min(_MOST_PARTITIONS, most + 1))

    def _ask(self, name: str, change: Change) -> ErrorCode | None:
        """The answer; None without one."""
        request, version, error_of = _request(name, change)
        try:
            with WireClient("127.0.0.1", self._random.choice(self._ports()), timeout_s=_PATIENCE_S) as wire:
                return ErrorCode(error_of(wire.call(request, version)))
        except OSError:
            return None
        except AssertionError as error:
            if "closed the connection" not in str(error):
                self._history.complain(self._name, str(error))
            return None


def _request(name: str, change: Change) -> tuple[Any, int, Callable[[Any], int]]:
    match change.kind:
        case Kind.CREATE:
            settings = {
                _BIRTH: str(_BIRTH_BASE + change.number),
                _ALTERED: str(_ALTERED_BASE + change.number),
            }
            topic = new_topic(name, change.partitions, settings)
            creation = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=False)
            return creation, CREATE_TOPICS_VERSION, lambda answer: answer.topics[0].error_code
        case Kind.DELETE:
            states = [DeleteTopicsRequest.DeleteTopicState(name=name)]
            deletion = DeleteTopicsRequest(topics=states, timeout_ms=_TIMEOUT_MS)
            return deletion, 6, lambda answer: answer.responses[0].error_code
        case Kind.GROW:
            growth = create_partitions_request(grown(name, change.partitions))
            return growth, 3, lambda answer: answer.results[0].error_code
        case Kind.ALTER:
            value = str(_ALTERED_BASE + change.number)
            return (
                incremental_request(TOPIC, name, (_ALTERED, SET, value)),
                1,
                lambda answer: answer.responses[0].error_code,
            )


class View(NamedTuple):
    """What a broker says of the topics of all administrators. `ends` are those of all partitions."""

    topics: Mapping[str, Topic]
    ends: Mapping[str, Sequence[int]]


def view(port: int) -> View | None:
    """A broker's; None when it has no definite answer."""
    try:
        with WireClient("127.0.0.1", port, timeout_s=_LOOK_S) as wire:
            metadata = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)
            found = {topic.name: topic for topic in metadata.topics if topic.name.startswith(PREFIX)}
            if any(topic.error_code for topic in found.values()):
                return None
            counts = {name: len(topic.partitions) for name, topic in found.items()}
            return View(_topics(wire, counts), _ends(wire, counts)) if counts else View({}, {})
    except (OSError, AssertionError, _NoAnswerError):
        return None


class _NoAnswerError(Exception):
    """A broker does not know yet, or not any more."""


def _topics(wire: WireClient, counts: Mapping[str, int]) -> dict[str, Topic]:
    request = describe_configs_request(TOPIC, "", [_BIRTH, _ALTERED])
    [resource] = request.resources
    request.resources = [
        type(resource)(resource_type=TOPIC, resource_name=name, configuration_keys=[_BIRTH, _ALTERED])
        for name in counts
    ]
    topics: dict[str, Topic] = {}
    for result in wire.call(request, 4).results:
        if result.error_code:
            raise _NoAnswerError
        values = {config.name: int(config.value) for config in result.configs}
        name = result.resource_name
        topics[name] = Topic(values[_BIRTH] - _BIRTH_BASE, values[_ALTERED] - _ALTERED_BASE, counts[name])
    return topics


def _ends(wire: WireClient, counts: Mapping[str, int]) -> dict[str, Sequence[int]]:
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    asked = [
        topic_class(
            name=name,
            partitions=[
                topic_class.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=_LATEST)
                for index in range(partitions)
            ],
        )
        for name, partitions in counts.items()
    ]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked, timeout_ms=_TIMEOUT_MS)
    ends: dict[str, Sequence[int]] = {}
    for topic in wire.call(request, LIST_OFFSETS_VERSION).topics:
        if any(partition.error_code for partition in topic.partitions):
            raise _NoAnswerError
        ends[topic.name] = [partition.offset for partition in topic.partitions]
    return ends


def require_agreement(ports: Mapping[int, int], administrators: Sequence[Administrator], history: History) -> None:
    """All brokers, by node id, come to the same topics, each of which is what its administrator believes possible."""
    deadline = time.monotonic() + AGREE_S
    while True:
        views = {node_id: view(port) for node_id, port in ports.items()}
        first = next(iter(views.values()))
        if first is not None and all(one == first for one in views.values()):
            break
        if time.monotonic() > deadline:
            history.complain("brokers", f"do not agree on topics {AGREE_S:.0f} s after all was healed: {views}")
            return
        time.sleep(_AGAIN_S)
    for administrator in administrators:
        for name, beliefs in administrator.topics.items():
            found = first.topics.get(name)
            if found not in beliefs.states():
                history.complain("brokers", f"have {found} as {name}, which is to be {beliefs.told()}")
    for name, ends in first.ends.items():
        if any(ends):
            history.complain("brokers", f"say that partitions of {name} end at {ends}, to which nobody wrote")
