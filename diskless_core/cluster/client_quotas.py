"""The quotas of clients as they are now, and their alteration through the cluster shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from diskless_core.cluster import quota_changes, quota_filters
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.quota_changes import QuotaAlteration
from diskless_core.cluster.quota_filters import Component
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import CLIENT_QUOTAS
from diskless_core.coordinator.tables import Writes
from diskless_core.quotas.entities import Quotas, decode_entity

_log = structlog.get_logger(__name__)


class ClientQuotas:
    """All quotas that are set, from what this node knows now."""

    def __init__(self, cluster: ClusterShard, apply: Callable[[Quotas], None]) -> None:
        """`apply` is called with all quotas, now and whenever one of them has changed."""
        self._cluster = cluster
        self._apply = apply
        cluster.on_commit(self._notice)
        apply(self.all())

    def all(self) -> Quotas:
        """Every quota."""
        return {decode_entity(text): values for (text,), values in self._cluster.state.rows(CLIENT_QUOTAS)}

    def describe(self, components: Sequence[Component], *, strict: bool) -> Quotas | Refusal:
        """The quotas that a filter lets through; see `quota_filters.matching`."""
        return quota_filters.matching(self.all(), components, strict=strict)

    async def alter(self, alterations: Sequence[QuotaAlteration], *, validate_only: bool) -> list[Refusal | None]:
        """Change the quotas of each entity, all as asked or none; in force when this returns.

        Raises:
            CoordinatorError: no definite answer.
        """
        refusals = await self._cluster.submit(
            lambda command: quota_changes.alter_quotas(command, alterations, validate_only=validate_only)
        )
        altered = [one.entity for one, refusal in zip(alterations, refusals, strict=True) if refusal is None]
        if altered and not validate_only:
            _log.info("client quotas altered", entities=altered)
        return refusals

    def _notice(self, writes: Writes) -> None:
        if writes.get(CLIENT_QUOTAS):
            self._apply(self.all())
