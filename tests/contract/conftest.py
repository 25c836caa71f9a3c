"""S3 as moto plays it, and Google Cloud Storage as fake-gcs-server does: one of each for the tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

from tests.support.fake_gcs import fake_gcs_server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


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
