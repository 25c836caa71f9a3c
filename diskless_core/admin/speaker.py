"""Every answer of the HTTP interface says in its headers which broker gives it, and of which cluster."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diskless_core.cluster.view import Speaker

NODE_ID_HEADER = "Diskless-Node-Id"
CLUSTER_ID_HEADER = "Diskless-Cluster-Id"


class SpeakerHeaders:
    """Adds the headers, those of what the broker knows of itself by then."""

    def __init__(self, app: ASGIApp, speaker: Callable[[], Speaker]) -> None:
        self._app = app
        self._speaker = speaker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers, speaker = MutableHeaders(scope=message), self._speaker()
                if speaker.node_id is not None:
                    headers[NODE_ID_HEADER] = str(speaker.node_id)
                if speaker.cluster_id is not None:
                    headers[CLUSTER_ID_HEADER] = speaker.cluster_id
            await send(message)

        await self._app(scope, receive, send_named)
