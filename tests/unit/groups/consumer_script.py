"""A script of one group of the consumer protocol: members that behave, topics, and a coordinator without a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from diskless_core.groups.consumer import heartbeat as protocol
from diskless_core.groups.consumer.changes import Circumstances, GroupChanges
from diskless_core.groups.consumer.codec import decode_group, encode_group
from diskless_core.groups.consumer.model import ConsumerGroup, CurrentAssignment, Partitions, TopicIdPartition
from diskless_core.groups.consumer.records import replayed
from diskless_core.groups.consumer.requests import Heartbeat, HeartbeatAnswer, HeartbeatRefusedError, validate
from diskless_core.protocol.errors import ErrorCode
from tests.unit.groups.node import Topics

ASSIGNORS = ("uniform", "range")
REBALANCE_MS = 60_000


class ConsumerScript:
    """Drives one group."""

    def __init__(self, max_size: int = 100) -> None:
        self.group: ConsumerGroup | None = None
        self.topics = Topics()
        self.max_size = max_size
        self.refresh_regexes = False

    def partitions(self, topic: str, *numbers: int) -> Partitions:
        return frozenset(TopicIdPartition(self.topics.ids[topic], number) for number in numbers)

    def current(self, member_id: str) -> CurrentAssignment:
        assert self.group is not None
        return self.group.current_of(member_id)

    def beat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> HeartbeatAnswer:
        """One heartbeat; raises HeartbeatRefusedError."""
        request = Heartbeat(group_id="g", member_id=member_id, epoch=epoch, **fields)
        validate(request, version, ASSIGNORS)
        changes = GroupChanges("g", self.group)
        if request.leaves:
            answer = protocol.leave(changes, request)
        else:
            answer = protocol.heartbeat(changes, request, self._circumstances())
        self._take(changes)
        return answer

    def refusal(self, *args: Any, **fields: Any) -> ErrorCode:
        """The error of a heartbeat that has to be refused, and changes nothing."""
        before = self.group
        try:
            self.beat(*args, **fields)
        except HeartbeatRefusedError as error:
            assert self.group == before
            return error.code
        raise AssertionError("the heartbeat was accepted")

    def join(self, member_id: str, *topics: str, **fields: Any) -> HeartbeatAnswer:
        """The first heartbeat of a member."""
        full = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topic_names": frozenset(topics),
            "owned": frozenset(),
            **fields,
        }
        return self.beat(member_id, 0, **full)

    def fence(self, member_id: str) -> None:
        """A timeout."""
        changes = GroupChanges("g", self.group)
        changes.remove_member(member_id)
        self._take(changes)

    def restart(self) -> None:
        """What is left of the group is what was written down."""
        if self.group is not None:
            self.group = decode_group(encode_group(self.group))

    def _circumstances(self) -> Circumstances:
        return Circumstances(
            topics=self.topics,
            now_ms=1_000,
            max_size=self.max_size,
            assignors=ASSIGNORS,
            refresh_regexes=self.refresh_regexes,
        )

    def _take(self, changes: GroupChanges) -> None:
        group = self.group
        for record in changes.records:
            group = replayed(group, record)
        assert group == changes.group, "the records say what happened"
        self.group = group


@dataclass
class Consumer:
    """A member as a client library keeps it: it takes its time to give up, and takes what is new after that."""

    script: ConsumerScript
    member_id: str
    topics: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    owned: Partitions = frozenset()
    told: Partitions = frozenset()
    missed_answer: bool = False

    def beat(self) -> None:
        """One heartbeat; a fenced member gives everything up and joins again with the next one."""
        try:
            if self.epoch == 0:
                answer = self.script.join(self.member_id, *self.topics, **self.fields)
            else:
                answer = self.script.beat(self.member_id, self.epoch, owned=self.owned, **self._repeated)
        except HeartbeatRefusedError as error:
            if error.code not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                raise
            self.lose_everything()
            return
        self.missed_answer = False
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.told = answer.assignment
        if self.owned <= self.told:
            self.owned = self.told

    def give_up(self) -> None:
        """What has to be revoked is revoked, and what is new begins."""
        self.owned = self.told

    def lose_everything(self) -> None:
        """It is no member any more, and knows it."""
        self.epoch, self.owned, self.told = 0, frozenset(), frozenset()

    def beat_in_vain(self) -> None:
        """A heartbeat whose answer is lost."""
        before = self.epoch, self.owned, self.told
        self.beat()
        if self.epoch > 0:
            self.epoch, self.owned, self.told = before
            self.missed_answer = True

    @property
    def _repeated(self) -> dict[str, Any]:
        identity = {"instance_id": self.fields["instance_id"]} if "instance_id" in self.fields else {}
        if not self.missed_answer:
            return identity
        return identity | {"rebalance_timeout_ms": REBALANCE_MS, "topic_names": frozenset(self.topics)}


def settle(*consumers: Consumer) -> None:
    """Heartbeats in turn until nothing changes any more."""
    for _ in range(20):
        before = [(one.epoch, one.owned) for one in consumers]
        for one in consumers:
            one.beat()
            one.give_up()
        if [(one.epoch, one.owned) for one in consumers] == before:
            return
    raise AssertionError("the group does not come to rest")
