"""Every message in every version: there and back, and against an independent codec."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from importlib.resources import files
from typing import Any

import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchResponse as StockFetchResponse
from kafka.protocol.producer import ProduceResponse as StockProduceResponse

from diskless_core.protocol import messages
from diskless_core.protocol.messages import (
    administration,
    consumer_group,
    membership,
    remote_log,
    share_group,
    streams_group,
)


class HeaderOf:
    def __init__(self, api_key: int, version: int) -> None:
        self.request_api_key = api_key
        self.request_api_version = version


def test_kafka_python_clients_in_this_process_keep_their_own_response_classes() -> None:
    for api_key, stock in ((0, StockProduceResponse), (1, StockFetchResponse)):
        assert issubclass(ResponseClassRegistry.get_response_class(HeaderOf(api_key, 11)), stock)


def test_it_makes_no_difference_whether_kafka_python_clients_are_imported_first() -> None:
    program = """
import {}, {}
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchResponse
class Header: request_api_key, request_api_version = 1, 11
assert issubclass(ResponseClassRegistry.get_response_class(Header), FetchResponse)
"""
    for order in (("kafka", "diskless_core.protocol.messages"), ("diskless_core.protocol.messages", "kafka")):
        subprocess.run([sys.executable, "-c", program.format(*order)], check=True)


def schemas(package: Any) -> list[tuple[Any, str]]:
    return [(package, path.name.removesuffix(".json")) for path in files(package).iterdir() if path.suffix == ".json"]


PACKAGES = (messages, administration, consumer_group, membership, remote_log, share_group, streams_group)


@pytest.mark.parametrize(("package", "name"), [schema for package in PACKAGES for schema in schemas(package)])
def test_every_schema_in_the_folder_has_a_class_of_its_name_and_says_what_its_fields_are(
    package: Any, name: str
) -> None:
    def nameless(fields: list[Any]) -> list[str]:
        return [f["name"] for f in fields if not f.get("about")] + [
            n for f in fields for n in nameless(f.get("fields", []))
        ]

    assert package is not messages or name in vars(messages)
    assert getattr(package, name).json["name"] == name
    assert nameless(getattr(package, name).json["fields"]) == []


def test_requests_and_responses_of_an_api_belong_together() -> None:
    for api_key, api in messages.REQUESTS.items():
        assert api.request.API_KEY == api.response.API_KEY == api_key
        assert api.request.valid_versions == api.response.valid_versions
    assert set(messages.DISKLESS_APIS) == {93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106}


def test_no_two_records_have_one_key() -> None:
    """A replica would take one for the other."""
    names = defaultdict[int, list[str]](list)
    for _, name in schemas(messages):
        if name.endswith("Record"):
            names[getattr(messages, name).json["apiKey"]].append(name)
    assert {key: found for key, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("api_key", "name"),
    [
        (2, "TopicRecord"),
        (140, "PartitionsPlacedRecord"),
        (102, "DisklessFileCommittedRecord"),
        (120, "CoordinatorEntryRecord"),
    ],
)
def test_metadata_records_are_found_by_their_api_key(api_key: int, name: str) -> None:
    assert messages.METADATA_RECORDS[api_key].__name__ == name
