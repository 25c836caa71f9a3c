"""Who tells where records lie: a broker that is away for a while, one that refuses, and a bucket without snapshots."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diskless_core.clock import SystemClock
from diskless_core.layout.codec import LayoutEncoder
from diskless_spark.source import tables
from diskless_spark.source.connection import connect
from diskless_spark.source.layouts import PATIENCE_S, PLAN_PATIENCE_S, AbsentError, LayoutError, Layouts, those_there
from diskless_spark.source.offsets import NOWHERE
from diskless_spark.source.options import SnapshotKind, SourceOptionError, Subscription, parse
from diskless_spark.source.source import DisklessDataSource
from tests.unit.spark.source.worlds import World

ONE = replace(World.empty(0), segments=(), ranges=())
ALL = Subscription(pattern=".*")


def lines() -> Iterator[bytes]:
    encoder = LayoutEncoder()
    yield encoder.begin()
    yield encoder.partition(ONE.partition)
    yield from encoder.layout([], start_offset=0, end_offset=0, local_start_offset=0)
    yield encoder.end()


WHOLE = (200, b"".join(lines()))
CUT_OFF = (200, next(lines()))


@contextmanager
def answering(*answers: tuple[int, bytes], port: int = 0) -> Iterator[str]:
    """A broker that gives these answers, one after the other. One of status 0 is the end of its connection."""
    rest = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = rest.pop(0)
            if status:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
    assert not rest


@dataclass
class Pauses(SystemClock):
    """A clock that stands still but for pauses, and does something at the end of each."""

    then: Callable[[], None] = lambda: None
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(seed=1)

    def monotonic(self) -> float:
        return sum(self.seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.then()


def asking(url: str, clock: Pauses, *, is_stream: bool = True, patience_s: float = PATIENCE_S) -> Layouts:
    options = parse({"subscribe": "t", "diskless.url": url}, is_stream=is_stream)
    return Layouts(
        connection=connect(options, {}),
        kind=SnapshotKind.BROKER,
        patience_s=patience_s,
        is_stream=is_stream,
        clock=clock,
        sleep=clock.sleep,
    )


@pytest.mark.parametrize("bad", [(503, b"starting"), (502, b""), (504, b""), CUT_OFF, (0, b"")], ids=str)
def test_a_broker_that_has_no_answer_yet_is_asked_again_at_growing_intervals(bad):
    clock = Pauses()
    with answering(bad, bad, WHOLE) as url:
        assert asking(url, clock).of(ALL) == [ONE]
    first, second = clock.seconds
    assert 0 < first < second


def test_a_broker_that_is_started_again_is_found_again():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    clock = Pauses()
    with ExitStack() as broker:

        def start() -> None:
            if len(clock.seconds) == 2:
                broker.enter_context(answering(WHOLE, port=port))

        clock.then = start
        assert asking(f"http://127.0.0.1:{port}", clock).of(ALL) == [ONE]
    assert len(clock.seconds) == 2


def test_of_several_brokers_one_that_answers_is_enough():
    clock = Pauses()
    with answering((503, b"starting")) as starting, answering(WHOLE) as well:
        assert asking(f"http://127.0.0.1:1, {starting}/,{well}", clock).of(ALL) == [ONE]
    assert clock.seconds == []


def test_several_brokers_that_have_no_answer_are_all_told_and_asked_again():
    clock = Pauses()
    with answering((503, b"starting"), WHOLE) as starting:
        assert asking(f"http://127.0.0.1:1,{starting}", clock).of(ALL) == [ONE]
    assert len(clock.seconds) == 1
    with pytest.raises(LayoutError, match=r"127\.0\.0\.1:1 does not answer.*127\.0\.0\.1:2 does not answer"):
        asking("http://127.0.0.1:1,http://127.0.0.1:2", clock, patience_s=0).of(ALL)


@pytest.mark.parametrize(("is_stream", "patience_s"), [(True, PATIENCE_S), (False, PLAN_PATIENCE_S)])
def test_a_broker_that_is_not_there_is_an_error_in_the_end(is_stream, patience_s):
    clock = Pauses()
    with pytest.raises(LayoutError, match=r"does not answer.*diskless\.url says where it is") as raised:
        asking("http://127.0.0.1:1", clock, is_stream=is_stream, patience_s=patience_s).of(ALL)
    assert ("diskless.snapshot=bucket" in str(raised.value)) is not is_stream, "streams refuse it"
    assert patience_s / 2 < clock.monotonic() <= patience_s


def test_who_waits_how_long():
    schema, given = tables.full_schema(include_headers=False), {"subscribe": "t"}
    batch, stream = DisklessDataSource(given).reader(schema), DisklessDataSource(given).streamReader(schema)
    assert (batch.layouts.patience_s, batch.layouts.patient().patience_s) == (PLAN_PATIENCE_S, PATIENCE_S)
    assert (stream.layouts.patience_s, stream.layouts.is_stream) == (PATIENCE_S, True)


@pytest.mark.parametrize(
    ("status", "subscription", "kind", "message"),
    [
        (404, Subscription(topics=("t",)), AbsentError, "does not know all of these topics: no t"),
        (
            422,
            Subscription(pattern="(?=t)"),
            SourceOptionError,
            "^subscribePattern: the broker at .* refuses it: no t$",
        ),
        (500, ALL, LayoutError, "answers with 500: no t"),
    ],
)
def test_a_refusal_is_told_at_once(status, subscription, kind, message):
    clock = Pauses()
    refusal = b'{"error_code": 1, "message": "no t"}'
    with answering((status, refusal)) as url, pytest.raises(kind, match=message):
        asking(url, clock).of(subscription)
    assert clock.seconds == []


def test_no_address_at_all():
    with pytest.raises(LayoutError, match="no address of a broker"):
        asking("broker:9644", Pauses()).of(ALL)


def test_what_there_is_of_some_topics_is_asked_for_by_a_pattern():
    with answering((404, b"no other"), WHOLE) as url:
        assert those_there(asking(url, Pauses()), Subscription(topics=("t", "other")), NOWHERE) == [ONE]


def test_a_bucket_without_snapshots_is_told_with_what_to_look_at(tmp_path):
    given = {"subscribe": "t", "diskless.snapshot": "bucket"} | {
        f"{noun}.fsspec.url": f"file://{tmp_path}" for noun in ("wal_object_store", "remote_storage")
    }
    options = parse(given, is_stream=False)
    layouts = Layouts(connection=connect(options, {}), kind=options.snapshot)
    with pytest.raises(LayoutError) as raised:
        layouts.of(options.subscription)
    for words in ("below wal-snapshots", "there is none", "metadata.log.max.snapshot.interval.ms", "object.prefix"):
        assert words in str(raised.value)
