"""Every answer of the HTTP interface says in its headers which broker gives it, and of which cluster.

A request may say by the same headers for whom it is. Any other broker refuses it before anything is done.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import status
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diskless_core.admin.errors import error_answer
from diskless_core.cluster.view import Speaker

NODE_ID_HEADER = "Diskless-Node-Id"
CLUSTER_ID_HEADER = "Diskless-Cluster-Id"


class SpeakerHeaders:
    """Adds the headers, those of what the broker knows of itself by then, and looks at those of requests.

    A request for another broker or another cluster is answered with 421. One that names what this broker does not know
    of itself yet is answered with 503: it starts.
    """

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

        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send_named)

    def _refusal(self, asked: Headers) -> JSONResponse | None:
        speaker = self._speaker()
        own = {
            NODE_ID_HEADER: None if speaker.node_id is None else str(speaker.node_id),
            CLUSTER_ID_HEADER: speaker.cluster_id,
        }
        for header, found in own.items():
            wanted = asked.get(header)
            if wanted is None or wanted == found:
                continue
            if found is None:
                message = (
                    f"the request is for {header} {wanted}, and this broker, which starts, does not know its own yet"
                )
                return error_answer(status.HTTP_503_SERVICE_UNAVAILABLE, message, {"Retry-After": "1"})
            message = f"the request is for {header} {wanted}, and this is {found}: nothing was done"
            return error_answer(status.HTTP_421_MISDIRECTED_REQUEST, message)
        return None
