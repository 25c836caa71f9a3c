"""Which quotas DescribeClientQuotas asks for (KIP-546). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from diskless_core.cluster.operations import Refusal
from diskless_core.protocol.errors import ErrorCode
from diskless_core.quotas.entities import Entity, EntityType, Quotas


class MatchType(IntEnum):
    """Kafka's numbers for how a component matches the name of an entity's part."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""


class Component(NamedTuple):
    """A condition: there is a part of this type, and its name matches. `match_type` is what the client sent."""

    entity_type: str
    match_type: int
    match: str | None


def matching(quotas: Quotas, components: Sequence[Component], *, strict: bool) -> Quotas | Refusal:
    """The quotas of the entities that fulfil all conditions, and, if `strict`, have no other parts."""
    refusal = _check(components)
    if refusal is not None:
        return refusal
    return {entity: values for entity, values in quotas.items() if _fits(entity, components, strict=strict)}


def _fits(entity: Entity, components: Sequence[Component], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(components) != len(names):
        return False
    return all(
        component.entity_type in names
        and (component.match_type == MatchType.SPECIFIED or names[component.entity_type] == component.match)
        for component in components
    )


def _check(components: Sequence[Component]) -> Refusal | None:
    types = [component.entity_type for component in components]
    for component in components:
        refusal = _check_type(component.entity_type, types) or _check_match(component)
        if refusal is not None:
            return refusal
    if EntityType.IP in types and len(types) > 1:
        return _invalid("An ip filter component cannot be combined with user or client-id.")
    return None


def _check_type(entity_type: str, types: Sequence[str]) -> Refusal | None:
    if not entity_type:
        return _invalid("Invalid empty entity type.")
    if types.count(entity_type) > 1:
        return _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
    if entity_type not in list(EntityType):
        return Refusal(code=ErrorCode.UNSUPPORTED_VERSION, message=f"Unsupported entity type {entity_type}")
    return None


def _check_match(component: Component) -> Refusal | None:
    if component.match_type not in list(MatchType):
        return _invalid(f"Unknown match type {component.match_type}")
    if (component.match is not None) != (component.match_type == MatchType.EXACT):
        return _invalid("An exact match, and no other one, needs a string to match.")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)
