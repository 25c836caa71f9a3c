"""From the members of a group to what is written down of them, and back."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.groups.model import PersistedMember
from diskless_core.groups.roster import Member, Roster


def persisted_members(
    roster: Roster, protocol: str | None, assignments: Mapping[str, bytes]
) -> tuple[PersistedMember, ...]:
    """All members; who is not in `assignments` has an empty one."""
    return tuple(
        PersistedMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(protocol),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in roster
    )


def restored_member(persisted: PersistedMember, protocol: str | None) -> Member:
    """A member of which only the group's protocol is known: what else it could do went with the broker."""
    return Member(
        member_id=persisted.member_id,
        instance_id=persisted.instance_id,
        client_id=persisted.client_id,
        client_host=persisted.client_host,
        rebalance_timeout_ms=persisted.rebalance_timeout_ms,
        session_timeout_ms=persisted.session_timeout_ms,
        protocols=((protocol, persisted.subscription),) if protocol is not None else (),
        assignment=persisted.assignment,
    )
