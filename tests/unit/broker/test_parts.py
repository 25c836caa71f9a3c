"""A start that fails: what is raised is why."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from diskless_core.broker.parts import start_parts
from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.wal_object_store import WalObjectStoreError

ALONE = BrokerConfig(diskless_startup_timeout_ms=0)


async def start(backends: Mock) -> None:
    """As `Node.start` does it."""
    around = Mock()
    stack = AsyncExitStack()
    try:
        await start_parts(ALONE, cast("Any", backends), around, stack)
    except BaseException:
        await stack.aclose()
        raise


@pytest.mark.parametrize(("failing", "error"), [("objects", WalObjectStoreError), ("log", CoordinatorLogError)])
def test_a_backend_that_did_not_start_lets_go_of_what_it_has_and_the_reason_is_what_is_raised(
    failing: str, error: type[Exception]
) -> None:
    backends = Mock(objects=AsyncMock(), log=AsyncMock(is_shared=False))
    backend = getattr(backends, failing)
    backend.start.side_effect = error("no route to host")
    backend.stop.side_effect = error("it has not been started")

    with pytest.raises(error, match="no route to host"):
        asyncio.run(start(backends))

    backend.stop.assert_awaited_once()
