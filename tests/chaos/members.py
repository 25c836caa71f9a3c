"""Consumer groups at work on a cluster that is being broken: members join, read, commit and leave all the time.

librdkafka's are in threads of this process, Java's in processes of their own, which are killed as often as they leave.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.clients import CLIENT, Clock
from tests.chaos.cluster import SESSION_MS
from tests.chaos.history import Commit, Found, GroupRead, History, Place, Sent
from tests.support.apache_kafka import java

CLASSIC, CONSUMER = "classic", "consumer"

_STAYS_S = (5.0, 30.0)
_AWAY_S = (0.0, 3.0)
_COMMIT_EVERY_S = 0.5
_MOST_AT_ONCE = 200
_LOOK_S = 2.0
_ASK_S = 5.0
_SESSION: Mapping[str, Mapping[str, Any]] = {
    CLASSIC: {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000},
    CONSUMER: {},  # the broker says
}
_NEVER = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


_LEAVE_S = 180.0
"""So long a member may take to leave: for a part of it, all brokers may be on their way up."""


class Slot:
    """A place in a group that somebody has most of the time: one member after the other, for some seconds each.

    Attributes:
        group: whose place it is.
        name: the place's.
    """

    def __init__(self, group: str, name: str, history: History, clock: Clock) -> None:
        self.group = group
        self.name = name
        self._history, self._clock = history, clock
        self._random = random.Random(name)
        self._stays = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stay(self) -> None:
        """Whoever has it from now on stays until `stop`."""
        self._stays.set()

    def stop(self, timeout_s: float) -> None:
        """The last one leaves."""
        self._stays.set()
        self._stopping.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._history.complain(self.name, "does not leave its group in time")

    def _run(self) -> None:
        life = 0
        while not self._stopping.is_set():
            life += 1
            over = _Over(time.monotonic() + self._random.uniform(*_STAYS_S), self._stays, self._stopping)
            self._live(life, over)
            self._stopping.wait(self._random.uniform(*_AWAY_S))

    def _live(self, life: int, is_over: _Over) -> None:
        """Be a member until its time is over. `life` counts them."""
        raise NotImplementedError


class LibrdkafkaSlot(Slot):
    """Members of librdkafka. With an `instance` they are static: the next one is the same member."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        protocol: str,
        number: int,
        history: History,
        clock: Clock,
        *,
        instance: str | None = None,
    ) -> None:
        super().__init__(group, f"{group}-{number}", history, clock)
        self._topic = topic
        self._is_static = instance is not None
        self._settings = {
            "bootstrap.servers": bootstrap,
            "client.id": self.name,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **({"group.instance.id": instance} if instance is not None else {}),
            **_SESSION[protocol],
            **CLIENT,
        }

    def _live(self, life: int, is_over: _Over) -> None:
        member = _Member(self._settings, self._topic, f"{self.name}.{life}", self._history, self._clock)
        member.live(is_over, may_be_held=self._is_static)


class _Over:
    """Whether a member's time is over."""

    def __init__(self, end_s: float, stays: threading.Event, stopping: threading.Event) -> None:
        self._end_s, self._stays, self._stopping = end_s, stays, stopping

    def __call__(self) -> bool:
        return self._stopping.is_set() or (not self._stays.is_set() and time.monotonic() > self._end_s)


class _Member:
    """One consumer, from its subscription until it leaves."""

    def __init__(self, settings: Mapping[str, Any], topic: str, name: str, history: History, clock: Clock) -> None:
        self._group: str = settings["group.id"]
        self._topic, self._name = topic, name
        self._history, self._clock = history, clock
        self._assigned_s: dict[int, float] = {}
        self._uncommitted: dict[int, int] = {}
        self._error: KafkaError | None = None
        self._consumer = Consumer({**settings, "error_cb": self._failed})

    def live(self, is_over: _Over, *, may_be_held: bool) -> None:
        """Args:
        may_be_held: whether another process may still have the identity of this one, which ends it.
        """
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)
        commit_at_s = time.monotonic()
        while not is_over() and self._error is None:
            self._read()
            if self._uncommitted and time.monotonic() >= commit_at_s:
                self._commit()
                commit_at_s = time.monotonic() + _COMMIT_EVERY_S
        if self._uncommitted and self._error is None:
            self._commit()
        self._consumer.close()
        held = may_be_held and self._error is not None and self._error.code() == KafkaError.UNRELEASED_INSTANCE_ID
        if self._error is not None and not held:
            self._history.complain(self._name, str(self._error))

    def _failed(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _NEVER:
            self._error = error

    def _assigned(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._assigned_s[one.partition] = self._clock()
            self._uncommitted.pop(one.partition, None)

    def _gone(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._uncommitted.pop(one.partition, None)

    def _read(self) -> None:
        wait_s = 0.2
        for _ in range(_MOST_AT_ONCE):
            # One at a time: a batch might hold records of before an assignment and of after it.
            message = self._consumer.poll(wait_s)
            if message is None:
                return
            wait_s = 0
            error = message.error()
            if error is None:
                self._note(message)
            else:
                self._failed(error)

    def _note(self, message: Message) -> None:
        place = Place(message.partition() or 0, message.offset() or 0)
        assigned_s = self._assigned_s.pop(place.partition, None)
        self._history.group_read(
            self._group, GroupRead(self._name, place, Sent.of(message.value() or b""), self._clock(), assigned_s)
        )
        self._uncommitted[place.partition] = place.offset + 1

    def _commit(self) -> None:
        offsets, begun_s = dict(self._uncommitted), self._clock()
        self._uncommitted.clear()
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        taken: set[int] = set()
        with suppress(KafkaException):  # the outcome is not known, for an earlier attempt may have been taken
            answer = self._consumer.commit(offsets=wanted, asynchronous=False)
            taken = {one.partition for one in answer or () if one.error is None}
        for partition, offset in offsets.items():
            ended_s = self._clock() if partition in taken else inf
            self._history.group_commit(self._group, Commit(Place(partition, offset), begun_s, ended_s))


class JavaSlot(Slot):
    """Apache Kafka's verifiable consumer. It leaves, or is killed, in turn."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        bootstrap: str,
        topic: str,
        group: str,
        protocol: str,
        history: History,
        clock: Clock,
    ) -> None:
        super().__init__(group, f"{group}-java", history, clock)
        self._log = folder / f"{self.name}.log"
        settings = folder / f"{self.name}.properties"
        settings.write_text(
            f"client.id={self.name}\nreconnect.backoff.max.ms=500\nretry.backoff.ms=50\nmetadata.max.age.ms=2000\n"
        )
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--verbose"]
        arguments += ["--group-protocol", protocol, "--reset-policy", "earliest", "--command-config", str(settings)]
        if protocol == CLASSIC:
            arguments += ["--session-timeout", str(SESSION_MS)]
        self._command = java(jars, "org.apache.kafka.tools.VerifiableConsumer", *arguments)

    def _live(self, life: int, is_over: _Over) -> None:
        name, ends_by = f"{self.name}.{life}", signal.SIGKILL if life % 2 else signal.SIGTERM
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        reader = threading.Thread(target=_Told(self.group, name, self._history, self._clock).all, args=[process.stdout])
        reader.start()
        while not is_over() and process.poll() is None:
            self._stopping.wait(0.2)
        if process.poll() is not None:
            self._history.complain(name, f"ended by itself with {process.returncode}; see {self._log}")
        process.send_signal(signal.SIGTERM if self._stopping.is_set() else ends_by)
        try:
            process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._history.complain(name, "does not leave its group in time")
        reader.join()
        process.stdout.close()


class _Told:
    """What one verifiable consumer writes down, each thing before it does the next."""

    def __init__(self, group: str, name: str, history: History, clock: Clock) -> None:
        self._group, self._name = group, name
        self._history, self._clock = history, clock
        self._assigned_s: dict[int, float] = {}
        self._pending: dict[int, tuple[int, float]] = {}

    def all(self, lines: Any) -> None:
        for line in lines:
            with suppress(json.JSONDecodeError):  # the last line of one that was killed
                self._take(json.loads(line))
        self._give_up_pending()

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "partitions_assigned":
                self._assigned_s |= {one["partition"]: self._clock() for one in event["partitions"]}
            case "record_data":
                place = Place(event["partition"], event["offset"])
                assigned_s = self._assigned_s.pop(place.partition, None)
                sent = Sent.of(event["value"].encode())
                self._history.group_read(self._group, GroupRead(self._name, place, sent, self._clock(), assigned_s))
            case "records_consumed":  # it commits these now
                self._give_up_pending()
                now_s = self._clock()
                self._pending = {one["partition"]: (one["maxOffset"] + 1, now_s) for one in event["partitions"]}
            case "offsets_committed" if event["success"]:
                for one in event["offsets"]:
                    _, begun_s = self._pending.pop(one["partition"], (0, self._clock()))
                    place = Place(one["partition"], one["offset"])
                    self._history.group_commit(self._group, Commit(place, begun_s, self._clock()))

    def _give_up_pending(self) -> None:
        for partition, (offset, begun_s) in self._pending.items():
            self._history.group_commit(self._group, Commit(Place(partition, offset), begun_s, inf))
        self._pending = {}


class Observer:
    """Looks at the committed offsets of all groups, as an administrator does."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, groups: Sequence[str], history: History, clock: Clock
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._history, self._clock = history, clock
        self._consumers = {
            group: Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "observer", **CLIENT})
            for group in groups
        }
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more by itself; `look` still works."""
        self._stopping.set()
        self._thread.join()

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def look(self, group: str) -> Mapping[int, int] | None:
        """The committed offsets of a group by partition, which are noted; None without an answer."""
        wanted = [TopicPartition(self._topic, partition) for partition in range(self._partitions)]
        begun_s = self._clock()
        try:
            answer = self._consumers[group].committed(wanted, _ASK_S)
        except KafkaException:
            return None
        if any(one.error is not None for one in answer):
            return None
        found = {one.partition: max(0, one.offset) for one in answer}
        for place in found.items():
            self._history.group_found(group, Found(Place(*place), begun_s, self._clock(), "an observer"))
        return found

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            for group in self._consumers:
                self.look(group)


def slots_of(
    jars: Path | None, folder: Path, bootstrap: str, topic: str, history: History, clock: Clock
) -> list[LibrdkafkaSlot | JavaSlot]:
    """Groups of both protocols, each of two members that come and go and a static one; a Java group with the jars.

    Their names put them into different shards.
    """
    slots: list[LibrdkafkaSlot | JavaSlot] = [
        LibrdkafkaSlot(bootstrap, topic, group, protocol, number, history, clock, instance=instance)
        for group, protocol in (("members-1", CLASSIC), ("members-2", CONSUMER))
        for number, instance in enumerate((None, None, f"{group}-static"), 1)
    ]
    if jars is not None:
        slots.append(JavaSlot(jars, folder, bootstrap, topic, "members-3", CONSUMER, history, clock))
    return slots
