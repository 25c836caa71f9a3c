"""What AlterClientQuotas does to the quotas of clients (KIP-546). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.cluster.operations import ClusterCommand, Refusal
from diskless_core.cluster.records import QuotaSet
from diskless_core.cluster.tables import CLIENT_QUOTAS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.quotas.entities import Entity, EntityType, QuotaKey, encode_entity, entity_of

_WHOLE = 1e-6
"""How far a number may be from a whole one and still count as one, as in Apache Kafka."""

_MAX_LONG = 2.0**63
_KEYS = list(QuotaKey)
_LIMITED = {EntityType.USER, EntityType.CLIENT_ID}


class QuotaChange(NamedTuple):
    """A new limit for one key; None removes it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """What to do to the quotas of one entity, whose `parts` are types with names as the client gave them."""

    parts: Sequence[tuple[str, str | None]]
    changes: Sequence[QuotaChange]

    @property
    def entity(self) -> Entity:
        return entity_of(dict(self.parts))


def alter_quotas(
    command: ClusterCommand, alterations: Sequence[QuotaAlteration], *, validate_only: bool
) -> list[Refusal | None]:
    """Change the quotas of each entity, all as asked or none; the answers are in the order of the alterations."""
    times_named = Counter(alteration.entity for alteration in alterations)
    answers: list[Refusal | None] = []
    for alteration in alterations:
        if times_named[alteration.entity] > 1:
            refusal: Refusal | None = _invalid("Each quota entity must appear at most once.")
        else:
            refusal = check_alteration(alteration)
        if refusal is None and not validate_only:
            _alter(command, alteration)
        answers.append(refusal)
    return answers


def _alter(command: ClusterCommand, alteration: QuotaAlteration) -> None:
    current = command.get(CLIENT_QUOTAS, (encode_entity(alteration.entity),)) or {}
    for change in alteration.changes:
        if change.value != current.get(change.key):
            command.emit(QuotaSet(entity=alteration.entity, key=change.key, value=change.value))


def check_alteration(alteration: QuotaAlteration) -> Refusal | None:
    """What can be said against it without knowing any quotas."""
    refusal = _check_entity(alteration.parts)
    if refusal is not None:
        return refusal
    times_named = Counter(change.key for change in alteration.changes)
    for change in alteration.changes:
        if times_named[change.key] > 1:
            return _invalid(f"Duplicate quota key {change.key}")
        refusal = _check_value(change.key, change.value) if change.value is not None else None
        if refusal is not None:
            return refusal
    return None


def _check_entity(parts: Sequence[tuple[str, str | None]]) -> Refusal | None:
    if not parts:
        return _invalid("Invalid empty client quota entity")
    if len(dict(parts)) < len(parts):
        return _invalid("Invalid client quota entity, an entity type is named twice")
    for kind, name in parts:
        if kind == EntityType.IP:
            return _invalid("Quotas of addresses (ip) are not supported, only those of user and client-id")
        if kind not in _LIMITED:
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
    return None


def _check_value(key: str, value: float) -> Refusal | None:
    if key not in _KEYS:
        return _invalid(f"Invalid configuration key {key}: only {' and '.join(_KEYS)} are supported")
    if not value > 0:
        return _invalid(f"Quota {key} must be greater than 0")
    if value > _MAX_LONG:
        return _invalid(f"Proposed value for {key} is too large for a LONG.")
    if abs(round(value) - value) > _WHOLE:
        return _invalid(f"{key} cannot be a fractional value.")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)
