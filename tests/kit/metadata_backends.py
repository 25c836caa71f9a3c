"""What faulty keepers of segments' metadata are made from: one in memory, with a ledger that its nodes share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataError
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger, MemoryRemoteLogMetadata, Operation
from diskless_core.testing.remote_log_metadata import RemoteLogMetadataContract
from diskless_core.testing.remote_log_metadata_life import BreakMetadata
from diskless_core.testing.remote_log_metadata_lookups import MakeMetadata
from tests.kit.fault import Fault, MakeSuite

NOUN = "remote_log_metadata"
PASSWORD = "correct-horse"


class Unreachable(MemoryRemoteLogMetadata):
    """One whose backend is not there."""

    async def start(self, services):
        raise RemoteLogMetadataError("cannot be reached: check the address")


def suite(made: type[MemoryRemoteLogMetadata], unreachable: type[MemoryRemoteLogMetadata] = Unreachable) -> MakeSuite:
    """The suite for one whose nodes share a ledger."""

    class Suite(RemoteLogMetadataContract):
        secrets = (PASSWORD,)

        @pytest.fixture
        def make_metadata(self) -> MakeMetadata:
            ledger = MemoryLedger()
            return lambda: made(ledger)

        @pytest.fixture
        def make_unreachable_metadata(self) -> MakeMetadata:
            return unreachable

        @pytest.fixture
        def break_metadata(self) -> BreakMetadata:
            return broken

    return lambda: Suite


@asynccontextmanager
async def broken(metadata: RemoteLogMetadata) -> AsyncIterator[None]:
    """Every call fails."""
    assert isinstance(metadata, MemoryRemoteLogMetadata)
    with ExitStack() as stack:
        for operation in Operation:
            stack.enter_context(metadata.failing(operation))
        yield


def fault(name: str, made: type[MemoryRemoteLogMetadata], promise: str) -> Fault:
    """A fault; what is wrong is its docstring."""
    return Fault(noun=NOUN, name=name, says=(made.__doc__ or "").strip(), promise=promise, suite=suite(made))
