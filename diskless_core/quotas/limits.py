"""Which of the quotas that are set holds for a client: Kafka's eight levels of precedence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from diskless_core.quotas.entities import Entity, EntityType, entity_of

_CACHED = 10_000


class Bucket(NamedTuple):
    """Whose traffic is counted together. What does not matter is empty: a user's quota counts its clients as one."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """What holds for a client."""

    bucket: Bucket
    bytes_per_second: float


class Limits:
    """The quotas of one key."""

    def __init__(self, quotas: Mapping[Entity, float]) -> None:
        self._quotas = dict(quotas)
        self._found: dict[tuple[str, str], Limit | None] = {}

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def of(self, user: str, client_id: str) -> Limit | None:
        """The most specific quota for a client, None when there is none.

        A user counts before a client id, a name before a default, both together before one alone
        (Apache Kafka, "Quota Configuration").
        """
        asked = (user, client_id)
        if asked not in self._found:
            if len(self._found) >= _CACHED:  # client ids are what clients make up
                self._found.clear()
            self._found[asked] = self._find(user, client_id)
        return self._found[asked]

    def _find(self, user: str, client_id: str) -> Limit | None:
        both, user_alone, client_alone = Bucket(user, client_id), Bucket(user, ""), Bucket("", client_id)
        levels: tuple[tuple[Bucket, dict[str, str | None]], ...] = (
            (both, {EntityType.USER: user, EntityType.CLIENT_ID: client_id}),
            (both, {EntityType.USER: user, EntityType.CLIENT_ID: None}),
            (user_alone, {EntityType.USER: user}),
            (both, {EntityType.USER: None, EntityType.CLIENT_ID: client_id}),
            (both, {EntityType.USER: None, EntityType.CLIENT_ID: None}),
            (user_alone, {EntityType.USER: None}),
            (client_alone, {EntityType.CLIENT_ID: client_id}),
            (client_alone, {EntityType.CLIENT_ID: None}),
        )
        for bucket, parts in levels:
            limit = self._quotas.get(entity_of(parts))
            if limit is not None:
                return Limit(bucket, limit)
        return None
