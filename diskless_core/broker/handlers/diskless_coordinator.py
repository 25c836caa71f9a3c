"""The Diskless coordinator's APIs, on the inter-broker listener (KIP-1164, "Diskless coordinator API").

They need CLUSTER_ACTION; what is asked is answered by `CoordinatorService`.
"""

from __future__ import annotations

from typing import Any

from diskless_core.broker.authorization import AclOperation, Principal, is_authorized
from diskless_core.broker.dispatch import Handler, RequestContext
from diskless_core.protocol.messages import DISKLESS_APIS


async def answer(context: RequestContext, request: Any) -> Any:
    """Handle any of them."""
    services = context.services
    principal = Principal(context.user, context.listener)
    allowed = is_authorized(principal, AclOperation.CLUSTER_ACTION, services.config.inter_broker_listener_name)
    service = services.coordinators if allowed else services.coordinators.refusing
    return await service.handle(context.header.api_key, request)


HANDLERS: dict[int, Handler] = dict.fromkeys(DISKLESS_APIS, answer)
