"""A member's heartbeat as a value, what is wrong with one by itself, and how it is answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from diskless_core.groups.consumer.model import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Partitions
from diskless_core.protocol.errors import ErrorCode

UNCHANGED_TIMEOUT = -1
_CLIENT_MAKES_ID_SINCE = 1


class HeartbeatRefusedError(Exception):
    """The answer to a heartbeat is an error."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request. None stands for what has not changed since the last one.

    Attributes:
        new_member_id: what the member is called if it has no id yet (version 0).
        topic_regex: "" to subscribe to none any more.
        owned: the partitions that the member owns at this moment.
    """

    group_id: str
    member_id: str
    new_member_id: str = ""
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def says_everything(self) -> bool:
        """Whether the member repeats all that it has said before, as it does when it joins or missed an answer."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED_TIMEOUT and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """What the member hears; `assignment` is None when there is nothing new."""

    member_id: str
    epoch: int
    assignment: Partitions | None = None


def validate(request: Heartbeat, version: int, assignors: Collection[str]) -> None:
    """Refuse a request that no group can answer.

    Raises:
        HeartbeatRefusedError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    may_lack_member_id = version < _CLIENT_MAKES_ID_SINCE and request.epoch == JOIN_EPOCH
    _require(bool(request.member_id) or may_lack_member_id, "MemberId can't be empty.")
    _require(bool(request.group_id.strip()), "GroupId can't be empty.")
    _require(request.instance_id is None or bool(request.instance_id.strip()), "InstanceId can't be empty.")
    _require(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if request.epoch == JOIN_EPOCH:
        _require(request.rebalance_timeout_ms != UNCHANGED_TIMEOUT, "RebalanceTimeoutMs must be provided to join.")
        _require(request.owned is not None and not request.owned, "TopicPartitions must be empty when (re-)joining.")
        subscribes = request.topic_names is not None or request.topic_regex is not None
        _require(subscribes, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif request.epoch == LEAVE_STATIC_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(request.epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise HeartbeatRefusedError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise HeartbeatRefusedError(ErrorCode.INVALID_REQUEST, message)
