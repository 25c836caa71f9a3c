"""Segments in buckets: few requests, parts in their order, and nothing left when a copy fails."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteResourceNotFoundError, RemoteStorage, RemoteStorageError
from diskless_core.testing.remote_storage_tools import BrokenLogError, make_segment
from tests.support.s3_storage import make_s3_storage

MEBIBYTE = 1 << 20
EMPTY_LISTING = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
NO_UPLOADS = b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"


def error_body(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>about {code}</Message></Error>".encode()


class S3Uploads:
    """Plays S3 for one upload at a time. `failures` tell what to answer to an operation instead of what is usual."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.parts: dict[int, bytes] = {}
        self.completion = b""
        self.failures: dict[str, tuple[int, str]] = {}
        self.lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                try:
                    body = self.rfile.read(size)
                except ConnectionError:
                    body = b""
                if len(body) < size:
                    self.close_connection = True
                    return
                status, headers, answer = stub.answer(self.command, self.path, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names that the server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, method: str, url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        parsed = urlsplit(url)
        query = parse_qs(parsed.query, keep_blank_values=True)
        operation = self.operation(method, parsed.path, query)
        with self.lock:
            if operation != "list":
                self.requests.append(operation)
            if operation in self.failures:
                status, code = self.failures[operation]
                return status, {}, error_body(code)
            if operation == "part":
                number = int(query["partNumber"][0])
                self.parts[number] = body
                return 200, {"ETag": f"etag-{number}", "x-amz-checksum-crc32": f"crc-{number}"}, b""
            if operation == "complete":
                self.completion = body
                return 200, {}, b"<CompleteMultipartUploadResult><ETag>all</ETag></CompleteMultipartUploadResult>"
        answers = {
            "list": EMPTY_LISTING,
            "uploads": NO_UPLOADS,
            "create": b"<InitiateMultipartUploadResult><UploadId>the-id</UploadId></InitiateMultipartUploadResult>",
            "delete": self.deletion(body) if operation == "delete" else b"",
        }
        kept = {"x-amz-checksum-algorithm": "CRC32"} if operation == "create" else {}
        return 204 if operation == "abort" else 200, {"ETag": "etag", **kept}, answers.get(operation, b"")

    @staticmethod
    def operation(method: str, path: str, query: dict[str, list[str]]) -> str:
        match method, query:
            case "GET", {"list-type": _}:
                return "list"
            case "GET", {"uploads": _}:
                return "uploads"
            case "POST", {"uploads": _}:
                return "create"
            case "PUT", {"partNumber": _}:
                return "part"
            case "POST", {"uploadId": _}:
                return "complete"
            case "DELETE", {"uploadId": _}:
                return "abort"
            case "POST", {"delete": _}:
                return "delete"
        return f"{method.lower()} {Path(path).suffix}"

    @staticmethod
    def deletion(body: bytes) -> bytes:
        keys = body.decode().split("<Key>")[1:]
        gone = "".join(f"<Deleted><Key>{key.partition('<')[0]}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{gone}</DeleteResult>".encode()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def s3() -> Iterator[S3Uploads]:
    stub = S3Uploads()
    yield stub
    stub.stop()


@pytest.fixture
async def storage(s3: S3Uploads, tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    storage = make_s3_storage(context, f"http://127.0.0.1:{s3.server.server_port}", "bucket")
    await storage.start()
    yield storage
    await storage.stop()


INDEX_PUTS = ["put .index", "put .leader_epoch_checkpoint", "put .snapshot", "put .timeindex"]


async def test_a_log_of_one_part_is_one_request_after_those_of_the_indexes(
    storage: RemoteStorage, s3: S3Uploads
) -> None:
    segment = make_segment(8 * MEBIBYTE)
    await storage.copy(segment.metadata, segment.data())
    assert sorted(s3.requests[:-1]) == INDEX_PUTS
    assert s3.requests[-1] == "put .log"


async def test_a_larger_log_goes_in_parts_and_is_completed_after_the_indexes(
    storage: RemoteStorage, s3: S3Uploads
) -> None:
    segment = make_segment(40 * MEBIBYTE + 1)
    await storage.copy(segment.metadata, segment.data())
    assert b"".join(s3.parts[number] for number in sorted(s3.parts)) == segment.log
    assert [len(s3.parts[number]) for number in sorted(s3.parts)] == [8 * MEBIBYTE] * 5 + [1]
    assert s3.requests[0] == "create"
    assert s3.requests[-2:] == ["part", "complete"]
    assert set(INDEX_PUTS) <= set(s3.requests[:-2])


async def test_a_completion_names_all_parts_in_order_with_their_checksums(
    storage: RemoteStorage, s3: S3Uploads
) -> None:
    """S3 wants a checksum back that it has been given."""
    segment = make_segment(40 * MEBIBYTE)
    await storage.copy(segment.metadata, segment.data())
    named = [part.partition(b"</Part>")[0] for part in s3.completion.split(b"<Part>")[1:]]
    assert len(named) == 5
    for number, part in enumerate(named, start=1):
        assert b"<PartNumber>%d</PartNumber>" % number in part
        assert b"etag-%d" % number in part
        assert b"<ChecksumCRC32>crc-%d</ChecksumCRC32>" % number in part


@pytest.mark.parametrize("operation", ["create", "part", "put .index", "complete"])
@pytest.mark.parametrize(
    ("status", "code", "retriable"),
    [(503, "SlowDown", True), (500, "InternalError", True), (403, "AccessDenied", False)],
)
async def test_a_request_that_fails_ends_the_copy_and_its_upload_and_is_not_retried_here(
    storage: RemoteStorage, s3: S3Uploads, operation: str, status: int, code: str, retriable: bool
) -> None:
    s3.failures[operation] = status, code
    segment = make_segment(9 * MEBIBYTE)
    with pytest.raises(RemoteStorageError) as caught:
        await storage.copy(segment.metadata, segment.data())
    assert caught.value.retriable == retriable
    assert s3.requests.count(operation) == 1
    assert ("abort" in s3.requests) == (operation != "create")
    assert "hush" not in "".join(traceback.format_exception(caught.value))


async def test_a_part_that_fails_ends_the_copy_before_the_log_is_read_to_its_end(
    storage: RemoteStorage, s3: S3Uploads
) -> None:
    s3.failures["part"] = 503, "SlowDown"
    segment = make_segment(96 * MEBIBYTE)
    with pytest.raises(RemoteStorageError):
        await storage.copy(segment.metadata, segment.data())
    assert "abort" in s3.requests
    assert s3.requests.count("part") <= 4


@pytest.mark.parametrize("operation", ["part", "complete"])
async def test_an_upload_that_s3_has_forgotten_can_be_tried_again(
    storage: RemoteStorage, s3: S3Uploads, operation: str
) -> None:
    s3.failures[operation] = s3.failures["abort"] = 404, "NoSuchUpload"
    segment = make_segment(9 * MEBIBYTE)
    with pytest.raises(RemoteStorageError, match="does not know of the upload") as caught:
        await storage.copy(segment.metadata, segment.data())
    assert caught.value.retriable


@pytest.mark.parametrize("operation", ["create", "put .index"])
async def test_a_missing_bucket_is_an_error_no_retry_helps(
    storage: RemoteStorage, s3: S3Uploads, operation: str
) -> None:
    s3.failures[operation] = 404, "NoSuchBucket"
    segment = make_segment(9 * MEBIBYTE)
    with pytest.raises(RemoteStorageError, match="create it or correct the url") as caught:
        await storage.copy(segment.metadata, segment.data())
    assert not caught.value.retriable


async def test_a_log_that_breaks_off_aborts_its_upload_and_writes_no_index(
    storage: RemoteStorage, s3: S3Uploads
) -> None:
    segment = make_segment(30 * MEBIBYTE)
    with pytest.raises(BrokenLogError):
        await storage.copy(segment.metadata, segment.broken_data(len(segment.log)))
    assert {"create", "abort"} <= set(s3.requests) <= {"create", "part", "abort"}


async def test_a_cancelled_copy_aborts_its_upload(storage: RemoteStorage, s3: S3Uploads) -> None:
    segment, stuck = make_segment(30 * MEBIBYTE), asyncio.Event()
    copying = asyncio.create_task(storage.copy(segment.metadata, segment.stuck_data(len(segment.log), stuck)))
    await stuck.wait()
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert {"create", "abort"} <= set(s3.requests) <= {"create", "part", "abort"}


async def test_what_cannot_be_deleted_is_an_error(storage: RemoteStorage, s3: S3Uploads) -> None:
    for operation in ("delete", "uploads"):
        s3.failures = {operation: (403, "AccessDenied")}
        with pytest.raises(RemoteStorageError) as caught:
            await storage.delete(make_segment().metadata)
        assert not caught.value.retriable


async def test_a_missing_segment_is_told_from_a_missing_bucket(storage: RemoteStorage, s3: S3Uploads) -> None:
    segment = make_segment()
    s3.failures["get .log"] = 404, "NoSuchKey"
    with pytest.raises(RemoteResourceNotFoundError, match=r"no kafka-tiered-storage/.*\.log"):
        await storage.fetch(segment.metadata, 0, 10)
    s3.failures["get .log"] = 404, "NoSuchBucket"
    with pytest.raises(RemoteStorageError, match="create it or correct the url") as caught:
        await storage.fetch(segment.metadata, 0, 10)
    assert not isinstance(caught.value, RemoteResourceNotFoundError)
