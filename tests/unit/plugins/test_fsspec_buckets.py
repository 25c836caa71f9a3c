"""How stores in buckets speak of what went wrong, and that they ask each thing once only."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import (
    ConditionFailedError,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_fsspec import s3_conditions, s3_store
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.errors import translated
from diskless_fsspec.factory import make_store
from diskless_fsspec.s3_store import S3ObjectStore

EMPTY_LISTING = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


def error_body(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>about {code}</Message></Error>".encode()


class S3Stub:
    """Answers listings with nothing, and everything else as it is told to."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.content_type = "application/xml"
        self.listing_status, self.listing_body = 200, EMPTY_LISTING
        self.requests: list[str] = []
        self.released = threading.Event()
        self.released.set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                listing = "list-type" in self.path
                if not listing:
                    stub.requests.append(self.command)
                    stub.released.wait(30)
                status, body = (stub.listing_status, stub.listing_body) if listing else (stub.status, stub.body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", stub.content_type)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = answer  # noqa: N815 - names that the server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def s3() -> Iterator[S3Stub]:
    stub = S3Stub()
    yield stub
    stub.stop()


def store_at(folder: Path, endpoint_url: str, **settings: Any) -> S3ObjectStore:
    context = PluginContext(node_id=1, data_dir=folder, log_dir=folder, clock=SystemClock())
    given = {"url": "s3://bucket/prefix", "region": "us-east-1", "key": "id", "secret": "hush-hush"} | settings
    store = make_store(context, FsspecSettings(endpoint_url=endpoint_url, **given))
    assert isinstance(store, S3ObjectStore)
    return store


@pytest.fixture
def unstarted(s3: S3Stub, tmp_path: Path) -> S3ObjectStore:
    return store_at(tmp_path, s3.url)


@pytest.fixture
async def store(unstarted: S3ObjectStore) -> Any:
    await unstarted.start()
    yield unstarted
    await unstarted.stop()


@pytest.mark.parametrize(
    ("status", "code", "retriable"),
    [
        (503, "SlowDown", True),
        (500, "InternalError", True),
        (502, "BadGateway", True),
        (429, "TooManyRequests", True),
        (400, "RequestTimeout", True),
        (403, "RequestTimeTooSkewed", True),
        (400, "InvalidArgument", False),
        (403, "AccessDenied", False),
        (403, "SignatureDoesNotMatch", False),
        (404, "NoSuchBucket", False),
        (413, "EntityTooLarge", False),
    ],
)
async def test_an_answer_of_s3_is_retriable_or_not_and_is_not_retried_here(
    store: WalObjectStore, s3: S3Stub, status: int, code: str, retriable: bool
) -> None:
    s3.status, s3.body = status, error_body(code)
    for attempt in (store.put("a/b", b"data"), store.get("a/b", 0, 4)):
        with pytest.raises(WalObjectStoreError) as caught:
            await attempt
        assert caught.value.retriable == retriable
        assert not isinstance(caught.value, ObjectNotFoundError)
        assert "a/b" in str(caught.value)
    assert s3.requests == ["PUT", "GET"]


async def test_no_secret_is_in_an_error_or_its_traceback(store: WalObjectStore, s3: S3Stub) -> None:
    s3.status, s3.body = 403, error_body("SignatureDoesNotMatch")
    with pytest.raises(WalObjectStoreError, match="check the credentials") as caught:
        await store.put("a", b"data")
    assert "hush" not in "".join(traceback.format_exception(caught.value))


async def test_a_missing_object_is_told_from_a_missing_bucket(store: WalObjectStore, s3: S3Stub) -> None:
    s3.status, s3.body = 404, error_body("NoSuchKey")
    with pytest.raises(ObjectNotFoundError):
        await store.get("a", 0, 4)
    s3.body = error_body("NoSuchBucket")
    with pytest.raises(WalObjectStoreError, match="create it or correct the url") as caught:
        await store.get("a", 0, 4)
    assert not isinstance(caught.value, ObjectNotFoundError)


PAGE = b"<html><body><h1>Gateway</h1><br>is lost</body></html>"


@pytest.mark.parametrize("status", [404, 403, 400])
@pytest.mark.parametrize("page", [PAGE, PAGE.replace(b"<br>", b"")], ids=["as browsers take it", "well-formed"])
async def test_the_page_of_a_load_balancer_is_waited_for_and_says_nothing_of_objects(
    store: S3ObjectStore, s3: S3Stub, status: int, page: bytes
) -> None:
    s3.status, s3.body, s3.content_type = status, page, "text/html; charset=utf-8"
    version = '"0"'
    for attempt in (
        store.get("a", 0, 4),
        store.get_versioned("a"),
        store.put("a", b"b"),
        store.replace("a", b"b", version),
    ):
        with pytest.raises(WalObjectStoreError, match=f"{status}, in an answer that is not the store's") as caught:
            await attempt
        assert type(caught.value) is WalObjectStoreError
        assert caught.value.retriable


async def test_a_404_without_a_word_of_s3_is_no_missing_object(store: S3ObjectStore, s3: S3Stub) -> None:
    s3.status, s3.body = 404, b""
    with pytest.raises(WalObjectStoreError, match="not the store's") as caught:
        await store.get_versioned("a")
    assert caught.value.retriable


async def test_a_start_where_a_load_balancer_answers_can_be_tried_again(unstarted: WalObjectStore, s3: S3Stub) -> None:
    s3.listing_status, s3.listing_body, s3.content_type = 404, PAGE, "text/html"
    with pytest.raises(WalObjectStoreError, match="check it, and the endpoint's url") as caught:
        await unstarted.start()
    assert caught.value.retriable
    await unstarted.stop()


async def test_a_wrong_clock_is_said_to_be_one(store: WalObjectStore, s3: S3Stub) -> None:
    s3.status, s3.body = 403, error_body("RequestTimeTooSkewed")
    with pytest.raises(WalObjectStoreError, match=r"set the clock$"):
        await store.put("a", b"b")


async def test_a_redirect_that_names_no_region_says_what_to_set(unstarted: WalObjectStore, s3: S3Stub) -> None:
    s3.status = s3.listing_status = 301
    s3.body = s3.listing_body = error_body("PermanentRedirect")
    with pytest.raises(WalObjectStoreError, match="set the region") as caught:
        await unstarted.start()
    assert not caught.value.retriable
    await unstarted.stop()


@pytest.mark.parametrize(("status", "code"), [(404, "NoSuchBucket"), (403, "AccessDenied")])
async def test_a_bucket_that_cannot_be_used_is_found_at_start(
    unstarted: WalObjectStore, s3: S3Stub, status: int, code: str
) -> None:
    s3.listing_status, s3.listing_body = status, error_body(code)
    with pytest.raises(WalObjectStoreError, match="s3://bucket/prefix") as caught:
        await unstarted.start()
    assert not caught.value.retriable
    await unstarted.stop()


async def test_an_address_where_nobody_listens_is_retriable(s3: S3Stub, tmp_path: Path) -> None:
    free_port = S3Stub()
    free_port.stop()
    with pytest.raises(WalObjectStoreError) as caught:
        await store_at(tmp_path, free_port.url).start()
    assert caught.value.retriable


async def test_a_request_without_an_answer_is_given_up_retriably(s3: S3Stub, tmp_path: Path) -> None:
    store = store_at(tmp_path, s3.url, request_timeout_ms=2000)
    await store.start()
    s3.released.clear()
    with pytest.raises(WalObjectStoreError, match=r"timed out|[tT]imeout") as caught:
        await store.put("a", b"data")
    assert caught.value.retriable
    s3.released.set()
    await store.stop()


async def test_a_url_without_a_bucket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WalObjectStoreError, match="names no bucket") as caught:
        await store_at(tmp_path, "http://127.0.0.1:1", url="s3://").start()
    assert not caught.value.retriable


async def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(WalObjectStoreError, match=r"pip install 'diskless\[s3\]'") as caught:
        await store_at(tmp_path, "http://127.0.0.1:1").start()
    assert not caught.value.retriable


async def test_an_object_that_s3_did_not_delete_is_not_reported_gone(store: WalObjectStore, s3: S3Stub) -> None:
    s3.body = (
        b"<DeleteResult><Deleted><Key>prefix/a</Key></Deleted>"
        b"<Error><Key>prefix/b</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    )
    assert list(await store.delete(["a", "b"])) == ["a"]


@pytest.mark.parametrize(
    ("status", "code", "is_refused", "retriable"),
    [
        (412, "PreconditionFailed", True, False),
        (409, "ConditionalRequestConflict", False, True),
        (503, "SlowDown", False, True),
        (500, "InternalError", False, True),
        (403, "AccessDenied", False, False),
        (404, "NoSuchBucket", False, False),
        (501, "NotImplemented", False, False),
    ],
)
async def test_only_a_failed_condition_is_a_refusal_and_nothing_is_sent_twice(
    store: S3ObjectStore, s3: S3Stub, status: int, code: str, is_refused: bool, retriable: bool
) -> None:
    s3.status, s3.body = status, error_body(code)
    for write in (store.create("a/b", b"data"), store.replace("a/b", b"data", '"version"')):
        with pytest.raises(WalObjectStoreError) as caught:
            await write
        assert isinstance(caught.value, ConditionFailedError) == is_refused
        assert caught.value.retriable == retriable
    assert s3.requests == ["PUT", "PUT"]


async def test_an_object_that_is_gone_is_another_version(store: S3ObjectStore, s3: S3Stub) -> None:
    s3.status, s3.body = 404, error_body("NoSuchKey")
    with pytest.raises(ConditionFailedError):
        await store.replace("a/b", b"data", '"version"')


async def test_a_client_that_would_drop_the_condition_writes_nothing(
    store: S3ObjectStore, s3: S3Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_conditions, "_CONDITIONS", {"IfMatch", "IfFromTheFuture"})
    with pytest.raises(WalObjectStoreError, match="cannot write on condition: pip install --upgrade") as caught:
        await store.create("a", b"data")
    assert not caught.value.retriable
    assert s3.requests == []


async def test_deletions_are_cut_into_requests_of_limited_size(
    store: WalObjectStore, s3: S3Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "DELETED_AT_ONCE", 2)
    s3.body = b"<DeleteResult></DeleteResult>"
    assert list(await store.delete(list("abcde"))) == []
    assert s3.requests == ["POST"] * 3


async def test_a_store_that_is_not_started_says_so(unstarted: WalObjectStore) -> None:
    with pytest.raises(WalObjectStoreError, match="not started"):
        await unstarted.put("a", b"data")


class CodedError(Exception):
    """As gcsfs raises them."""

    def __init__(self, code: int) -> None:
        super().__init__(f"about {code}")
        self.code = code
        self.message = f"about {code}"


class NoCredentialsError(Exception):
    """As botocore raises it."""


@pytest.mark.parametrize(
    ("error", "retriable"),
    [
        (CodedError(503), True),
        (CodedError(429), True),
        (CodedError(400), False),
        (CodedError(403), False),
        (OSError("Forbidden: b/o\nno access"), False),
        (NoCredentialsError("Unable to locate credentials"), False),
        (FileNotFoundError("b/nope/o"), False),
        (PermissionError("no"), False),
        (ValueError("Bad Request"), False),
        (ConnectionResetError("reset"), True),
        (TimeoutError(), True),
        (RuntimeError("never seen before"), True),
    ],
)
def test_errors_of_other_clients_are_retriable_where_a_retry_can_help(error: Exception, retriable: bool) -> None:
    found = translated(error, "cannot write 'a'")
    assert found.retriable == retriable
    assert str(found).startswith("cannot write 'a': ")


async def test_a_start_that_failed_since_the_bucket_was_away_can_be_tried_again(
    unstarted: S3ObjectStore, s3: S3Stub
) -> None:
    s3.listing_status, s3.listing_body = 503, error_body("SlowDown")
    for _ in range(2):
        with pytest.raises(WalObjectStoreError) as caught:
            await unstarted.start()
        assert caught.value.retriable
    s3.listing_status, s3.listing_body = 200, EMPTY_LISTING
    await unstarted.start()
    try:
        await unstarted.put("a", b"data")
    finally:
        await unstarted.stop()
    assert s3.requests == ["PUT"]
