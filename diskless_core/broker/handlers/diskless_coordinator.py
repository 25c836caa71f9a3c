"""The Diskless coordinator's APIs, on the inter-broker listener (KIP-1164, "Diskless coordinator API").

What is asked is answered by `CoordinatorService`.
"""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.framing import Request, Response


async def answer(context: RequestContext, request: Request) -> Response:
    """Handle any of them."""
    services = context.services
    service = services.coordinators if context.is_authorized else services.coordinators.refusing
    return await service.handle(context.header.api_key, request)
