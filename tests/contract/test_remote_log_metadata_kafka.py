"""Metadata of remote segments in an Apache Kafka keeps the contract."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskless_core.testing.remote_log_metadata import RemoteLogMetadataContract
from diskless_core.testing.remote_log_metadata_lookups import MakeMetadata
from tests.support.apache_kafka import ApacheKafka
from tests.support.metadata_topic import node, topic_settings

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def _no_socket_is_left_to_later_tests() -> Iterator[None]:
    """kafka-python leaves those of connections that it gave up to the garbage collector."""
    yield
    gc.collect()


class TestKafka(RemoteLogMetadataContract):
    @pytest.fixture
    def make_metadata(self, apache_kafka: ApacheKafka, tmp_path: Path) -> MakeMetadata:
        settings = topic_settings(apache_kafka.bootstrap, "remote-segments-of-the-contract")
        folders = (tmp_path / f"node-{number}" for number in itertools.count())
        return lambda: node(settings, next(folders))
