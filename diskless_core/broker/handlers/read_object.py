"""DisklessReadObject, on the inter-broker listener: what other brokers of the rack want of this one's cache.

(Extension to KIP-1164.) What is asked is answered by `ObjectLender`.
"""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessReadObjectRequest
from diskless_core.protocol.read_object import ReadObjectAnswer

MAX_ANSWERS = 16
"""Of one connection that may be under way at once, in memory until they are sent. Brokers keep fewer."""


async def read_object(context: RequestContext, request: DisklessReadObjectRequest) -> ReadObjectAnswer:
    """Handle DisklessReadObject."""
    lender = context.services.object_lender
    if not context.is_authorized:
        return lender.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only a broker may read objects")
    return await lender.read_object(request, has_room=context.connection.requests_under_way <= MAX_ANSWERS)
