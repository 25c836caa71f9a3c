"""What the HTTP interface refuses on every route, before anything is done."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from diskless_core.admin.app import MAX_BODY_BYTES
from diskless_core.admin.http import AdminServer
from tests.unit.admin.test_http import ANY_PORT, StubOrphans, sources

JSON = {"Content-Type": "application/json"}


class CountedScans(StubOrphans):
    """How many scans there were."""

    def __init__(self):
        super().__init__()
        self.scans = 0

    async def __call__(self, *, dry_run):
        self.scans += 1
        return await super().__call__(dry_run=dry_run)


@pytest.fixture
def orphans():
    return CountedScans()


@pytest.fixture
async def client(orphans):
    server = AdminServer(ANY_PORT, sources(orphans=orphans))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield http
    await server.stop()


async def test_a_misspelt_parameter_is_refused_and_nothing_is_deleted(client, orphans):
    answer = await client.post("/orphans/scan?dryrun=true")

    message = "there is no parameter dryrun; did you mean dry_run?"
    assert (answer.status_code, answer.json()) == (422, {"error_code": 422, "message": message})
    assert orphans.scans == 0


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/health/ready?x=1", "there is no parameter x: this request has none"),
        ("GET", "/metrics?x", "there is no parameter x: this request has none"),
        ("GET", "/plugins/wal_object_store/bucket/config?x=", "there is no parameter x: this request has none"),
        ("GET", "/compaction/plan?topics=t", "there is no parameter topics; did you mean topic?"),
        ("GET", "/coordinator/shards?zzz=1&count=true", "there is no parameter zzz; there are count"),
        ("POST", "/compaction?topic=t", "there is no parameter topic: this request has none"),
        ("GET", "/topics/layout?topic=t&regex=x", "there is no parameter regex; there are pattern, topic"),
    ],
)
async def test_an_unknown_parameter_is_refused_by_name(client, method, path, message):
    answer = await client.request(method, path)

    assert (answer.status_code, answer.json()["message"]) == (422, message)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/x-www-form-urlencoded"}])
async def test_a_body_that_is_not_called_json_is_told_the_header(client, headers):
    answer = await client.post("/compaction", content=b'{"all": true}', headers=headers)

    assert answer.status_code == 415
    assert "the header Content-Type: application/json" in answer.json()["message"]


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"])
async def test_a_body_that_is_called_json_is_read(client, kind):
    answer = await client.post("/compaction", content=b'{"all": true}', headers={"Content-Type": kind})

    assert (answer.status_code, answer.json()["message"]) == (503, "the broker is starting or stopping")


async def test_a_body_that_is_missing_is_said_to_be_missing(client):
    answer = await client.post("/compaction")

    assert (answer.status_code, "Field required" in answer.json()["message"]) == (422, True)


async def test_a_body_may_be_as_large_as_the_limit(client):
    body = b'{"all": true}'.ljust(MAX_BODY_BYTES)

    assert (await client.post("/compaction", content=body, headers=JSON)).status_code == 503


async def test_a_body_that_is_too_large_is_refused_before_it_is_sent(client):
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    length = f"Content-Length: {MAX_BODY_BYTES + 1}"
    writer.write(f"POST /compaction HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())

    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


async def test_a_body_of_unknown_length_is_refused_once_it_is_too_large(client):
    async def endless():
        for _ in range(MAX_BODY_BYTES // (1 << 20) + 1):
            yield b" " * (1 << 20)

    answer = await client.post("/compaction", content=endless(), headers=JSON)

    assert (answer.status_code, answer.json()["message"]) == (413, f"the body is larger than {MAX_BODY_BYTES} bytes")


@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "/orphans", 404), ("GET", "/orphans/scan", 405), ("DELETE", "/plugins", 405)]
)
async def test_what_there_is_not_is_an_error_in_the_shape_of_all_others(client, method, path, code):
    answer = await client.request(method, path)

    assert (answer.status_code, answer.json()["error_code"]) == (code, code)
    assert ("allow" in answer.headers) == (code == 405)
