"""The store keeps the contract, on S3 as moto plays it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from s3 import Answer, Gate

from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from diskless_obstore.config import ObstoreSettings
from diskless_obstore.store import ObstoreObjectStore

PREFIX = "some/place/"


class S3BackDoor(ObjectBackDoor):
    def __init__(self, client: Any, bucket: str, gate: Gate) -> None:
        self.client = client
        self.gate = gate
        self.bucket = bucket

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=PREFIX + key, Body=data)

    def protect(self, key: str) -> None:
        """As a policy does: S3 says in the answer which keys were refused, and here no other is deleted then."""
        name = f"<Key>{PREFIX}{key}</Key>".encode()
        refused = f"<Key>{PREFIX}{key}</Key><Code>AccessDenied</Code><Message>no</Message>"
        answer = Answer("200 OK", f"<?xml version='1.0'?><DeleteResult><Error>{refused}</Error></DeleteResult>")
        self.gate.rule = lambda request: answer if name in request.body else None

    def read(self, key: str) -> bytes | None:
        try:
            found: bytes = self.client.get_object(Bucket=self.bucket, Key=PREFIX + key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise
        return found


class TestObstore(WalObjectStoreContract):
    writes_on_condition = True
    page_objects = 10

    @pytest.fixture
    def store(self, endpoint: str, bucket: str) -> WalObjectStore:
        settings = ObstoreSettings(
            url=f"s3://{bucket}/{PREFIX}", endpoint_url=endpoint, region="us-east-1", key="test-key", secret="hush-hush"
        )
        return ObstoreObjectStore(settings, page_objects=self.page_objects)

    @pytest.fixture
    def back_door(self, client: Any, bucket: str, gate: Gate) -> ObjectBackDoor:
        return S3BackDoor(client, bucket, gate)
