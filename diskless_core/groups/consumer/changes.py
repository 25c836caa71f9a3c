"""A group while a request is worked on: every change is a record, and what follows sees its effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from diskless_core.groups.consumer import topic_regex
from diskless_core.groups.consumer.assignors import ASSIGNORS, Subscriber
from diskless_core.groups.consumer.model import ConsumerGroup, CurrentAssignment, ResolvedRegex
from diskless_core.groups.consumer.records import (
    ConsumerGroupRecord,
    CurrentRecord,
    GroupEpochRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    removal,
    replayed,
)
from diskless_core.groups.consumer.subscription import SubscribedTopics
from diskless_core.groups.topics import TopicCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a request is decided upon besides the group.

    Attributes:
        topics: the topics of the cluster, as of now.
        now_ms: wall-clock time.
        max_size: members that a group may have.
        assignors: names of the assignors that may be used, the default first.
        refresh_regexes: whether to look again for the topics of known regular expressions.
        may_have_missed: whether the member may not have heard what it is assigned.
    """

    topics: TopicCatalog
    now_ms: int
    max_size: int
    assignors: tuple[str, ...]
    refresh_regexes: bool
    may_have_missed: bool = False


class GroupChanges:
    """A group and the records that lead to it.

    Attributes:
        group: as the records so far leave it.
        records: in order.
    """

    def __init__(self, group_id: str, group: ConsumerGroup | None) -> None:
        self.group_id = group_id
        self.group = group or ConsumerGroup()
        self.records: list[ConsumerGroupRecord] = []

    def emit(self, *records: ConsumerGroupRecord) -> None:
        for record in records:
            self.records.append(record)
            self.group = replayed(self.group, record) or ConsumerGroup()

    def set_current(self, member_id: str, current: CurrentAssignment) -> None:
        """Write down what a member owns, if that is news."""
        if self.group.current.get(member_id) != current:
            self.emit(CurrentRecord(group_id=self.group_id, member_id=member_id, value=current))

    def remove_member(self, member_id: str) -> None:
        """Take a member out; the others get its partitions with the target assignment of the next heartbeat."""
        self.emit(*removal(self.group_id, member_id))
        self._forget_unused_regexes()
        self.raise_epoch(self.group.metadata_hash)

    def raise_epoch(self, metadata_hash: int) -> None:
        """Ask for a new target assignment."""
        epoch = self.group.epoch + 1
        self.emit(GroupEpochRecord(group_id=self.group_id, epoch=epoch, metadata_hash=metadata_hash))

    # --- regular expressions -----------------------------------------------------------------------------------------

    def resolve_regexes(self, circumstances: Circumstances) -> None:
        """Find the topics of regular expressions, of known ones where that is due, and forget those out of use."""
        used = self._forget_unused_regexes()
        due = sorted(used) if circumstances.refresh_regexes else sorted(used - self.group.regexes.keys())
        names = [topic.name for topic in circumstances.topics.all()] if due else []
        for regex in due:
            known, topics = self.group.regexes.get(regex), topic_regex.matching(regex, names)
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics=topics, timestamp_ms=circumstances.now_ms)
                self.emit(RegexRecord(group_id=self.group_id, regex=regex, value=resolved))

    def _forget_unused_regexes(self) -> set[str]:
        used = {metadata.topic_regex for metadata in self.group.members.values() if metadata.topic_regex}
        for regex in sorted(self.group.regexes.keys() - used):
            self.emit(RegexRecord(group_id=self.group_id, regex=regex, value=None))
        return used

    # --- the target --------------------------------------------------------------------------------------------------

    def assign(self, subscribed: SubscribedTopics, circumstances: Circumstances) -> None:
        """Make a new target assignment if one is asked for."""
        group = self.group
        if group.epoch <= group.target_epoch:
            return
        members = {
            member_id: Subscriber(
                instance_id=metadata.instance_id,
                topics=subscribed.ids(group.topics_of(metadata)),
                target=group.target_of(member_id),
            )
            for member_id, metadata in group.members.items()
        }
        assign = ASSIGNORS[preferred_assignor(group, circumstances.assignors)]
        for member_id, partitions in sorted(assign(members, subscribed.partition_counts).items()):
            if partitions != group.target_of(member_id):
                self.emit(TargetRecord(group_id=self.group_id, member_id=member_id, value=partitions))
        now_ms = circumstances.now_ms
        self.emit(TargetEpochRecord(group_id=self.group_id, epoch=group.epoch, timestamp_ms=now_ms))


def preferred_assignor(group: ConsumerGroup, assignors: tuple[str, ...]) -> str:
    """The assignor that most members wish for, else the default one."""
    wishes: Mapping[str, int] = Counter(
        metadata.server_assignor for metadata in group.members.values() if metadata.server_assignor in assignors
    )
    return max(assignors, key=lambda name: wishes.get(name, 0))
