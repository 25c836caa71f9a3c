"""The HTTP interface's routes about the cluster: every broker answers them for all."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response, status
from pydantic import BaseModel

from diskless_core.admin.models import ErrorAnswer
from diskless_core.admin.sources import ClusterSource
from diskless_core.cluster.view import ClusterView

_UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"model": ErrorAnswer}}


class ClusterHealth(BaseModel):
    """Whether clients can be served by some broker, as the broker `node_id` sees it."""

    node_id: int
    cluster_id: str
    controller: int | None
    healthy: bool
    reasons: list[str]
    fenced: list[int]


def add_cluster(app: FastAPI, cluster: ClusterSource) -> None:
    """Add the routes."""

    @app.get("/cluster", responses=_UNAVAILABLE)
    async def view(lag: bool = False) -> ClusterView:
        """The brokers, with the addresses of their HTTP interfaces, and who leads which coordinator.

        With `lag`, all brokers are asked how far their copies of the coordinators are. Why a broker is fenced, the
        controller is asked.
        """
        return await cluster(lag=lag, why_fenced=True)

    @app.get("/health/cluster", responses={503: {"model": ClusterHealth}})
    async def health(response: Response) -> ClusterHealth:
        """Every coordinator has a leader that is live, as far as this broker knows."""
        found = await cluster(lag=False, why_fenced=False)
        reasons = found.problems()
        if reasons:
            response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
        return ClusterHealth(
            node_id=found.node_id,
            cluster_id=found.cluster_id,
            controller=found.controller,
            healthy=not reasons,
            reasons=reasons,
            fenced=[broker.node_id for broker in found.brokers if broker.is_fenced],
        )
