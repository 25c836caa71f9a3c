"""The classic group protocol of one group, as Apache Kafka's group coordinator speaks it. No I/O, no clock.

Every method is an event: a client's request, or a timer or write that ended (in `cycle`, where the state moves too).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from diskless_core.groups.cycle import SYNC_TIMER, GenerationCycle, session_timer
from diskless_core.groups.effects import (
    NO_MEMBER_ID,
    Answered,
    CancelTimer,
    GroupState,
    Identity,
    Join,
    JoinAnswer,
    SetTimer,
    Sync,
    SyncAnswer,
)
from diskless_core.groups.model import PersistedGroup
from diskless_core.groups.roster import Member
from diskless_core.groups.settings import GroupSettings
from diskless_core.groups.snapshot import restored_member
from diskless_core.protocol.errors import ErrorCode


class ClassicGroup(GenerationCycle):
    """One group, and what its clients may ask of it."""

    @classmethod
    def restored(cls, group_id: str, persisted: PersistedGroup, settings: GroupSettings) -> ClassicGroup:
        """A group as it was last written down. Its members have their session timeout, from now, to show up."""
        group = cls(group_id, settings)
        group.generation = persisted.generation
        group.protocol_type = persisted.protocol_type or None
        group.protocol = persisted.protocol
        for member in persisted.members:
            group.roster.add(restored_member(member, persisted.protocol))
        if persisted.members:
            group.state = GroupState.STABLE
            if persisted.leader is not None and persisted.leader in group.roster:
                group.roster.leader = persisted.leader
        for one in group.roster:
            group._renew_session(one)
        if len(group.roster) > settings.max_size:
            group._prepare_rebalance("the loaded group has more members than are allowed")
        return group

    # --- requests ------------------------------------------------------------------------------------------------

    def join(self, request: Join) -> None:
        """JoinGroup. The answer is an effect, now or when the rebalance comes to its end."""
        if self.state is GroupState.DEAD:
            self._refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room_for(request.member_id):
            self._remove(request.member_id)
            self._refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=NO_MEMBER_ID)
            self._complete_join_if_ready()
        elif not self._can_agree_with(request):
            self._refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == NO_MEMBER_ID:
            self._join_without_id(request)
        elif request.member_id in self.roster.expected and request.instance_id is None:
            self._add_member(request, request.member_id)
        elif (error := self._check_member(request.member_id, request.instance_id)) is not ErrorCode.NONE:
            self._refuse(request, error)
        else:
            self._rejoin(request, self._member(request.member_id))

    def sync(self, request: Sync) -> None:
        """SyncGroup. The answer is an effect, now or when the leader's assignment is stored."""
        error = self._check_sync(request)
        if error is not ErrorCode.NONE:
            self._effects.append(Answered(request.id, SyncAnswer(error=error)))
            return
        member = self._member(request.member_id)
        self._pending_sync.discard(member.member_id)
        if not self._pending_sync:
            self._effects.append(CancelTimer(SYNC_TIMER))
        if self.state is GroupState.STABLE:
            self._effects.append(Answered(request.id, self._sync_answer(member)))
            return
        self._answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = request.id
        if member.member_id == self.roster.leader:
            self._assign(dict(request.assignments))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat: prolong the session, and say whether the member has to rejoin."""
        error = self._check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self._renew_session(self._member(member_id))
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, identities: Sequence[Identity]) -> Sequence[ErrorCode]:
        """LeaveGroup: one code for each of `identities`, or a single rebalance for all that leave."""
        before = len(self.roster)
        errors = [self._leave(identity) for identity in identities]
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE) and len(self.roster) < before:
            self._prepare_rebalance("members left")
        else:
            self._complete_join_if_ready()
        return errors

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether an OffsetCommit may be stored; it counts as a heartbeat.

        A negative generation comes from clients that do not use group management; it is good for an empty group.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._renew_session(self._member(member_id))
        return ErrorCode.NONE

    # --- checks --------------------------------------------------------------------------------------------------

    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            owner = self.roster.static_member_id(instance_id)
            if owner is not None and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.roster else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        error = self._check_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _check_sync(self, request: Sync) -> ErrorCode:
        error = self._check_generation(request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return error
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _can_agree_with(self, request: Join) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.roster.can_agree_on(
            name for name, _ in request.protocols
        )

    def _has_room_for(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        member = self.roster.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # Counting who has rejoined, not who is in, sheds the slowest members of a group that is too large.
            has_rejoined = member is not None and member.awaiting_join is not None
            return has_rejoined or self.roster.awaiting_join < self._settings.max_size
        return member is not None or len(self.roster) < self._settings.max_size

    # --- joining -------------------------------------------------------------------------------------------------

    def _join_without_id(self, request: Join) -> None:
        owner = self.roster.static_member_id(request.instance_id)
        if owner is not None:
            self._replace_static_member(request, self._member(owner))
        elif request.instance_id is None and request.needs_member_id:
            self.roster.expected.add(request.new_member_id)
            self._effects.append(SetTimer(session_timer(request.new_member_id), request.session_timeout_ms))
            self._refuse(request, ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id)
        else:
            self._add_member(request, request.new_member_id)

    def _add_member(self, request: Join, member_id: str) -> None:
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        if self._initial is not None:
            self._initial.new_member_came = True
        self.roster.add(
            Member(
                member_id=member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                protocols=request.protocols,
                is_new=True,
                awaiting_join=request.id,
            )
        )
        # It has no id to heartbeat with yet, so only this long wait for its JoinGroup can show that it is gone.
        self._effects.append(SetTimer(session_timer(member_id), self._settings.new_member_join_timeout_ms))
        self._rebalance(f"member {member_id} joined: {request.reason or 'no reason given'}")

    def _rejoin(self, request: Join, member: Member) -> None:
        is_leader = member.member_id == self.roster.leader
        changed = member.protocols != request.protocols
        settled = self.state is GroupState.COMPLETING_REBALANCE or (self.state is GroupState.STABLE and not is_leader)
        if settled and not changed:
            self._effects.append(Answered(request.id, self._join_answer(member)))
            return
        self._update(member, request)
        self._rebalance(f"member {member.member_id} rejoined: {request.reason or 'no reason given'}")

    def _replace_static_member(self, request: Join, member: Member) -> None:
        old_id, old_leader = member.member_id, self.roster.leader
        self._answer_join(member, JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id))
        self._answer_sync(member, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID))
        self._effects.append(CancelTimer(session_timer(old_id)))
        self.roster.rename(member, request.new_member_id)
        if old_id in self._pending_sync:
            self._pending_sync.remove(old_id)
            self._pending_sync.add(member.member_id)
        self._update(member, request)
        self._renew_session(member)
        if self.state is GroupState.STABLE and self.roster.vote() == self.protocol:
            assignments = {one.member_id: one.assignment for one in self.roster}
            self._persist(assignments, partial(self._static_member_stored, request, old_leader, self.generation))
        else:
            # Its old id may be with the leader already, whose assignment would then miss the new one.
            self._rebalance(f"static member {request.instance_id} came back as {member.member_id}")

    def _static_member_stored(self, request: Join, old_leader: str | None, generation: int) -> None:
        member = self.roster.get(request.new_member_id)
        if self.state is not GroupState.STABLE or generation != self.generation or member is None:
            return
        self._renew_session(member)
        if request.can_skip_assignment:
            self._answer_join(member, self._join_answer(member, skip_assignment=member.member_id == self.roster.leader))
        else:
            # Naming the old leader keeps a returning one from assigning: nobody would get to see its assignment.
            self._answer_join(member, self._join_answer(member, leader=old_leader))

    def _update(self, member: Member, request: Join) -> None:
        self._answer_join(member, JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        self.roster.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = request.id

    # --- leaving -------------------------------------------------------------------------------------------------

    def _leave(self, identity: Identity) -> ErrorCode:
        member_id = identity.member_id
        if member_id == NO_MEMBER_ID:
            member_id = self.roster.static_member_id(identity.instance_id) or NO_MEMBER_ID
        if member_id not in self.roster.expected:
            error = self._check_member(member_id, identity.instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._remove(member_id)
        return ErrorCode.NONE

    def _refuse(self, request: Join, error: ErrorCode, member_id: str | None = None) -> None:
        answer = JoinAnswer(error=error, member_id=request.member_id if member_id is None else member_id)
        self._effects.append(Answered(request.id, answer))
