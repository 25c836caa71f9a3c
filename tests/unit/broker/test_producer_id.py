"""InitProducerId when no id can be had."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.broker.handlers.producer_id import init_producer_id
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError, OutcomeUnknownError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import InitProducerIdRequest


@pytest.mark.parametrize("error", [NotCoordinatorError("not here"), OutcomeUnknownError("?"), CoordinatorError("away")])
def test_whatever_keeps_an_id_back_clients_ask_again_and_look_for_no_transaction_coordinator(
    error: CoordinatorError,
) -> None:
    """After NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE Java's producer looks for the one of a transactional id."""

    async def refuse() -> int:
        raise error

    context: Any = SimpleNamespace(services=SimpleNamespace(producer_ids=SimpleNamespace(next=refuse)))
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    response = asyncio.run(init_producer_id(context, request))
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (response.producer_id, response.producer_epoch) == (-1, -1)
