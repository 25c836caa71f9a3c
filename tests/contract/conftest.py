"""S3 as moto plays it, and Google Cloud Storage as fake-gcs-server does: one of each for the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.support.fake_gcs import fake_gcs_server
from tests.support.moto_s3 import moto_s3


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with moto_s3() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Iterator[Any]:
    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="test-key",
        aws_secret_access_key="test-secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    with fake_gcs_server() as url:
        yield url
