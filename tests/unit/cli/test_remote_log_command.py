"""`diskless remote-log dump` of a running broker."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from diskless_core.admin.models import RemoteSegment
from diskless_core.cli import admin_client
from diskless_core.cli.admin_client import AdminClientError
from diskless_core.cli.main import main
from diskless_core.testing.remote_log_metadata_tools import segment

URL = "http://127.0.0.1:9644"
SEGMENTS = [segment(1, 0, 9, custom_metadata=b"abc"), segment(2, 10, 19, epochs={0: 10, 2: 15})]
SHOWN = [RemoteSegment.of(metadata).model_dump(mode="json") for metadata in SEGMENTS]
LINE = (
    "RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=bwuKHFTESw6aLg9dHRx-AQ:orders-3, "
    "id=AAAAAAAAAAAAAAAAAAAAAg}, startOffset=10, endOffset=19, brokerId=1, maxTimestampMs=1700000000019, "
    "eventTimestampMs=1700000000000, segmentLeaderEpochs={0=10, 2=15}, segmentSizeInBytes=1000, "
    "customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, txnIdxEmpty=true}"
)


@pytest.fixture
def asked(monkeypatch):
    requests = []

    def ask(method, url, path, body=None, *, timeout_s=None, node_id=None, cluster_id=None):
        if path == "/cluster":
            return {"node_id": 1, "cluster_id": "c", "controller": 1, "brokers": [], "shards": []}
        requests.append((method, url, path))
        return SHOWN

    monkeypatch.setattr(admin_client, "ask", ask)
    return requests


def dump(*arguments):
    return CliRunner().invoke(main, ["remote-log", "dump", *arguments])


def test_every_segment_has_a_line_as_kafkas_formatter_writes_it(asked):
    result = dump("--url", URL)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == LINE
    assert "customMetadata=Optional[CustomMetadata{3 bytes}]" in result.stdout.splitlines()[0]
    assert asked == [("GET", URL, "/remote-log")]


def test_as_json_it_is_what_the_broker_answered(asked):
    assert json.loads(dump("--url", URL, "--json").stdout) == SHOWN


def test_topic_and_partition_are_asked_for(asked):
    dump("--url", URL, "--topic", "a.b_c-1", "--partition", "0")

    ((_, _, path),) = asked
    assert parse_qs(urlsplit(path).query) == {"topic": ["a.b_c-1"], "partition": ["0"]}


def test_the_configured_broker_is_asked_unless_another_is_named(asked):
    dump("-o", "admin.listener=http://127.0.0.1:7777")

    assert asked == [("GET", "http://127.0.0.1:7777", "/remote-log")]


def test_what_goes_wrong_is_told(monkeypatch):
    def nobody(method, url, path, **_):
        raise AdminClientError(f"no broker answers at {url}")

    monkeypatch.setattr(admin_client, "ask", nobody)
    result = dump("--url", URL)

    assert (result.exit_code, result.stderr) == (1, f"no broker answers at {URL}\n")


def test_what_kafkas_formatter_prints_has_no_json():
    result = dump("--kafka", "127.0.0.1:1", "--json")

    assert result.exit_code == 2
    assert "it has no JSON" in result.stderr
