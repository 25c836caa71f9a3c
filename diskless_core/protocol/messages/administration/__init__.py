"""Requests of administrators that kafka-python lacks: delegation tokens, brokers, voters of the metadata quorum.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiMessage


class CreateDelegationTokenRequest(ApiMessage, load_json=__name__):
    """KIP-48, CreateDelegationToken."""


class CreateDelegationTokenResponse(ApiMessage, load_json=__name__):
    """KIP-48, CreateDelegationToken."""


class RenewDelegationTokenRequest(ApiMessage, load_json=__name__):
    """KIP-48, RenewDelegationToken."""


class RenewDelegationTokenResponse(ApiMessage, load_json=__name__):
    """KIP-48, RenewDelegationToken."""


class ExpireDelegationTokenRequest(ApiMessage, load_json=__name__):
    """KIP-48, ExpireDelegationToken."""


class ExpireDelegationTokenResponse(ApiMessage, load_json=__name__):
    """KIP-48, ExpireDelegationToken."""


class DescribeDelegationTokenRequest(ApiMessage, load_json=__name__):
    """KIP-48, DescribeDelegationToken."""


class DescribeDelegationTokenResponse(ApiMessage, load_json=__name__):
    """KIP-48, DescribeDelegationToken."""


class UnregisterBrokerRequest(ApiMessage, load_json=__name__):
    """KIP-631, UnregisterBroker."""


class UnregisterBrokerResponse(ApiMessage, load_json=__name__):
    """KIP-631, UnregisterBroker."""


class AddRaftVoterRequest(ApiMessage, load_json=__name__):
    """KIP-853, AddRaftVoter."""


class AddRaftVoterResponse(ApiMessage, load_json=__name__):
    """KIP-853, AddRaftVoter."""


class RemoveRaftVoterRequest(ApiMessage, load_json=__name__):
    """KIP-853, RemoveRaftVoter."""


class RemoveRaftVoterResponse(ApiMessage, load_json=__name__):
    """KIP-853, RemoveRaftVoter."""
