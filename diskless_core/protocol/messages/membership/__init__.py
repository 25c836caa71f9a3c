"""What brokers ask of the controller: registration and heartbeats (KIP-631), with tagged fields of our own, and ids.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiMessage


class BrokerRegistrationRequest(ApiMessage, load_json=__name__):
    """KIP-631, BrokerRegistration."""


class BrokerRegistrationResponse(ApiMessage, load_json=__name__):
    """KIP-631, BrokerRegistration."""


class BrokerHeartbeatRequest(ApiMessage, load_json=__name__):
    """KIP-631, BrokerHeartbeat."""


class BrokerHeartbeatResponse(ApiMessage, load_json=__name__):
    """KIP-631, BrokerHeartbeat."""


class AllocateProducerIdsRequest(ApiMessage, load_json=__name__):
    """KIP-730, AllocateProducerIds."""


class AllocateProducerIdsResponse(ApiMessage, load_json=__name__):
    """KIP-730, AllocateProducerIds."""
