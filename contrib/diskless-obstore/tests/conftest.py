"""S3 as moto plays it, one for all tests, and a bucket for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from s3 import Gate, gated_s3


@pytest.fixture(scope="session")
def running() -> Iterator[Gate]:
    with gated_s3() as gate:
        yield gate


@pytest.fixture
def gate(running: Gate) -> Iterator[Gate]:
    yield running
    running.rule = lambda _: None
    running.requests.clear()
    running.held.clear()


@pytest.fixture(scope="session")
def endpoint(running: Gate) -> str:
    return f"http://127.0.0.1:{running.port}"


@pytest.fixture(scope="session")
def client(endpoint: str) -> Iterator[Any]:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test-key",
        aws_secret_access_key="hush-hush",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


@pytest.fixture
def bucket(client: Any) -> str:
    bucket = f"bucket-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    return bucket
