"""The store keeps the contract, on S3 as moto plays it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Event
from typing import Any

import pytest
from botocore.exceptions import ClientError
from s3 import Answer, Gate, refusal

from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from diskless_obstore.config import ObstoreSettings
from diskless_obstore.store import ObstoreObjectStore

PREFIX = "some/place/"
SECRET = "hush-hush"


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
    secrets = (SECRET,)

    @pytest.fixture
    def settings(self, request: pytest.FixtureRequest, endpoint: str, bucket: str) -> dict[str, Any]:
        return {
            "url": f"s3://{bucket}/{PREFIX}",
            "endpoint_url": endpoint,
            "region": "us-east-1",
            "key": "test-key",
            "secret": SECRET,
            "request_timeout_ms": 3_000 if "hang_backend" in request.fixturenames else 30_000,
        }

    @pytest.fixture
    def make_store(self, settings: dict[str, Any]) -> Callable[[], WalObjectStore]:
        return lambda: ObstoreObjectStore(ObstoreSettings(**settings), page_objects=self.page_objects)

    @pytest.fixture
    def store(self, make_store: Callable[[], WalObjectStore]) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def unopenable_store(self, settings: dict[str, Any]) -> WalObjectStore:
        return ObstoreObjectStore(ObstoreSettings(**settings | {"endpoint_url": "http://127.0.0.1:1"}))

    @pytest.fixture
    def fail_backend(self, gate: Gate) -> Callable[[], AbstractAsyncContextManager[None]]:
        @asynccontextmanager
        async def fail() -> AsyncIterator[None]:
            gate.rule = lambda request: refusal("503 Busy", "SlowDown")
            try:
                yield
            finally:
                gate.rule = lambda request: None

        return fail

    @pytest.fixture
    def hang_backend(self, gate: Gate) -> Callable[[], AbstractAsyncContextManager[None]]:
        @asynccontextmanager
        async def hang() -> AsyncIterator[None]:
            released = Event()
            gate.rule = lambda request: released
            try:
                yield
            finally:
                gate.rule = lambda request: None
                released.set()

        return hang

    @pytest.fixture
    def back_door(self, client: Any, bucket: str, gate: Gate) -> ObjectBackDoor:
        return S3BackDoor(client, bucket, gate)
