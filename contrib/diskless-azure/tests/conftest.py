"""One Azurite for all tests, a container for each, and a back door to it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient
from azurite import ACCOUNT, KEY, Azurite

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture
def container(azurite: Azurite) -> Iterator[ContainerClient]:
    """An empty container, reached by the synchronous client."""
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    client = ContainerClient(azurite.account_url, f"c-{uuid.uuid4().hex}", credential=credential)
    with client:
        client.create_container()
        yield client


@pytest.fixture
def context(tmp_path: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=tmp_path / "plugin", log_dir=tmp_path / "log", clock=SystemClock())
