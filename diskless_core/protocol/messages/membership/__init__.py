"""What brokers ask of the controller: to be members (KIP-631), ids (KIP-730), and what clients asked them (KIP-590).

Some have tagged fields of our own. Their JSON schemas are in this folder.
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


class EnvelopeRequest(ApiMessage, load_json=__name__):
    """KIP-590, Envelope."""


class EnvelopeResponse(ApiMessage, load_json=__name__):
    """KIP-590, Envelope."""
