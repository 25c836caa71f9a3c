"""ACLs, delegation tokens, SCRAM and SASL are refused until there is security, each as Apache Kafka refuses it."""

from __future__ import annotations

import pytest

from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.support.admin_requests import (
    alter_scram_request,
    create_acls_request,
    delete_acls_request,
    describe_acls_request,
)

DISABLED = ErrorCode.SECURITY_DISABLED
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NEVER = -1


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_refused_each_by_itself(wire, version):
    described = wire.call(describe_acls_request(), version)
    created = wire.call(create_acls_request("a", "b"), version)
    deleted = wire.call(delete_acls_request("a", "b", "c"), version)

    assert (described.error_code, described.resources) == (DISABLED, [])
    assert "Authorizer" in described.error_message
    assert [one.error_code for one in created.results] == [DISABLED] * 2
    assert [(one.error_code, one.matching_acls) for one in deleted.filter_results] == [(DISABLED, [])] * 3


@pytest.mark.parametrize("version", range(1, 4))
def test_a_token_is_refused_to_whoever_asks(wire, version):
    answer = wire.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=NEVER), version)

    assert (answer.error_code, answer.principal_type, answer.principal_name) == (NOT_ALLOWED, "User", "ANONYMOUS")
    times = (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms)
    assert (times, answer.token_id, answer.hmac) == ((NEVER,) * 3, "", b"")
    if version >= 3:
        assert answer.token_requester_principal_name == "ANONYMOUS"


def test_a_token_for_somebody_else_is_refused_in_his_name(wire):
    request = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice", renewers=[], max_lifetime_ms=NEVER
    )

    answer = wire.call(request, 3)

    assert (answer.error_code, answer.principal_name) == (NOT_ALLOWED, "alice")
    assert answer.token_requester_principal_name == "ANONYMOUS"


@pytest.mark.parametrize("version", [1, 2])
def test_tokens_are_neither_renewed_nor_ended_nor_described(wire, version):
    renewed = wire.call(RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=1), version)
    ended = wire.call(ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=-1), version)
    described = wire.call(DescribeDelegationTokenRequest(owners=None), version + 1)

    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (NOT_ALLOWED, NEVER)
    assert (ended.error_code, ended.expiry_timestamp_ms) == (NOT_ALLOWED, NEVER)
    assert (described.error_code, described.tokens) == (NOT_ALLOWED, [])


def test_each_user_is_refused_a_password_once(wire):
    answer = wire.call(alter_scram_request("alice", "bob"), 0)

    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert [(one.user, one.error_code) for one in answer.results] == [("alice", unsupported), ("bob", unsupported)]


def test_a_client_that_wants_to_show_who_it_is_learns_that_nobody_asks_and_goes_on(wire):
    handshake = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = wire.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)

    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert wire.call(describe_acls_request(), 3).error_code == DISABLED
