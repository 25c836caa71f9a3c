"""Who may do what a broker may, and what everybody else is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.broker.apis import INTER_BROKER_APIS
from diskless_core.broker.authorization import AclOperation, Principal, is_authorized
from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers.find_coordinator import find_coordinator
from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE
from diskless_core.diskless.service import DISKLESS_REQUESTS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.framing import RequestHeader
from diskless_core.protocol.messages import (
    DisklessRaiseHorizonRequest,
    DisklessReadObjectRequest,
    FindCoordinatorRequest,
)
from diskless_core.protocol.read_object import ReadObjectAnswer

BROKERS = "BROKERS"


@pytest.mark.parametrize(
    ("came_by", "for_brokers", "allowed"),
    [(BROKERS, BROKERS, True), ("CLIENTS", BROKERS, False), ("CLIENTS", None, False)],
)
def test_brokers_are_those_who_come_by_their_listener(came_by: str, for_brokers: str | None, allowed: bool) -> None:
    principal = Principal("ANONYMOUS", came_by)

    assert is_authorized(principal, AclOperation.CLUSTER_ACTION, for_brokers) is allowed


class _Service:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def handle(self, api_key: int, request: Any) -> Any:
        self.asked.append(api_key)
        return request

    def leader_of(self, key: str) -> Any:
        raise AssertionError("a client was told of a Diskless coordinator")


class _Lender:
    """Gives, and refuses, as a broker's cache does."""

    async def read_object(self, request: Any, *, has_room: bool) -> ReadObjectAnswer:
        assert (has_room, request.object_key) == (True, "k")
        return ReadObjectAnswer(data=b"given")

    def refused(self, error: ErrorCode, message: str) -> ReadObjectAnswer:
        return ReadObjectAnswer(error_code=int(error), error_message=message)


def context(came_by: str, api_key: int, api_version: int = 0) -> Any:
    service = _Service()
    service.refusing = _Service()
    config = SimpleNamespace(inter_broker_listener_name=BROKERS)
    services: Any = SimpleNamespace(coordinators=service, config=config, object_lender=_Lender())
    connection: Any = SimpleNamespace(user="ANONYMOUS", listener=came_by, requests_under_way=1)
    header = RequestHeader(api_key, api_version, correlation_id=0, client_id=None, body=0)
    frame: Any = None
    return RequestContext(services, connection, frame, header, INTER_BROKER_APIS)


@pytest.mark.parametrize("api_key", [request.API_KEY for request in DISKLESS_REQUESTS])
async def test_the_diskless_apis_are_for_brokers(api_key: int) -> None:
    handler = INTER_BROKER_APIS[api_key].handler
    for came_by in (BROKERS, "CLIENTS"):
        asked = context(came_by, api_key)
        await handler(asked, DisklessRaiseHorizonRequest(horizon=1))
        service = asked.services.coordinators
        assert (service.asked, service.refusing.asked) == (([api_key], []) if came_by == BROKERS else ([], [api_key]))


async def test_objects_are_read_for_brokers() -> None:
    handler = INTER_BROKER_APIS[DisklessReadObjectRequest.API_KEY].handler
    answers = {}
    for came_by in (BROKERS, "CLIENTS"):
        asked = context(came_by, DisklessReadObjectRequest.API_KEY)
        answers[came_by] = await handler(asked, DisklessReadObjectRequest(object_key="k", start=0, end=1))
    assert answers[BROKERS] == ReadObjectAnswer(data=b"given")
    assert answers["CLIENTS"].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answers["CLIENTS"].data == b""


async def test_clients_do_not_find_diskless_coordinators() -> None:
    request = FindCoordinatorRequest(key_type=FIND_COORDINATOR_KEY_TYPE, coordinator_keys=["0"])

    response = await find_coordinator(context("CLIENTS", FindCoordinatorRequest.API_KEY, 6), request)

    assert [found.error_code for found in response.coordinators] == [ErrorCode.INVALID_REQUEST]
