"""What comes over the wire is not trusted: a bad frame ends its own connection and nothing else, whatever is in it."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from diskless_core.broker.apis import CLIENT_APIS
from diskless_core.protocol.errors import ErrorCode
from tests.integration.plausible_requests import REQUESTS, Place
from tests.support.batches import batch_of, read_values
from tests.support.requests import (
    append,
    create_topic,
    create_topics,
    fetch_request,
    list_offset,
    metadata_request,
    new_topic,
    produce_request,
)
from tests.support.waiting import wait_until

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 3, 18, 19
MIB = 1 << 20
TOO_MUCH_S = 3.0
"""Of a broker's processor: more than any request may take, less than a decoder bomb would."""


class Work:
    """What a broker's processor does, however busy the machine is with other things."""

    def __init__(self, broker):
        self._process = psutil.Process(broker.pid)

    def so_far_s(self):
        times = self._process.cpu_times()
        return times.user + times.system


class Bystander:
    """A client that produces on a connection of its own all the while."""

    def __init__(self, broker, topic):
        self._work = Work(broker)
        self._wire = broker.connect()
        self._topic = topic
        self._over = threading.Event()
        self._offsets = []
        self._most_s = 0.0
        self._problem = None
        create_topic(self._wire, topic)
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self):
        try:
            while not self._over.is_set() or not self._offsets:
                began_s = self._work.so_far_s()
                self._offsets += append(self._wire, self._topic, batch_of(b"%d" % len(self._offsets)))
                self._most_s = max(self._most_s, self._work.so_far_s() - began_s)
        except (OSError, AssertionError) as problem:
            self._problem = problem

    def end(self):
        """It was neither disturbed nor held up by what the broker did for others, and all that it wrote is there."""
        self._over.set()
        self._thread.join()
        assert self._problem is None
        count = len(self._offsets)
        assert self._offsets == list(range(count))
        response = self._wire.call(fetch_request(self._topic, {0: 0}), 12)
        assert read_values(response.responses[0].partitions[0].records) == [b"%d" % number for number in range(count)]
        self._wire.close()
        assert self._most_s < TOO_MUCH_S


@pytest.fixture(autouse=True)
def bystander(request, topic):
    """In every test here that has the shared broker."""
    if "broker" not in request.fixturenames:
        yield
        return
    other = Bystander(request.getfixturevalue("broker"), f"{topic}-of-a-bystander")
    yield
    other.end()


def closings_logged(broker, start, wire):
    """Warnings about one client since a position in the log; the broker may still be writing the first."""
    client = f"client=127.0.0.1:{wire.socket.getsockname()[1]}"
    return wait_until(
        lambda: [line for line in broker.log_text(start).splitlines() if client in line], "a line in the broker's log"
    )


def assert_closed_and_logged_once(broker, data):
    """Send these bytes on a new connection."""
    start = broker.log.stat().st_size
    with broker.connect() as wire:
        with suppress(BrokenPipeError, ConnectionResetError):
            wire.send_bytes(data)
        work = Work(broker)
        began_s = work.so_far_s()
        assert wire.is_closed()
        assert work.so_far_s() - began_s < TOO_MUCH_S
        [line] = closings_logged(broker, start, wire)
        assert "a connection was closed" in line


def framed(*parts):
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def header(api_key, version, *, is_flexible=False, client_id=b""):
    tags = b"\0" if is_flexible else b""
    return struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id + tags


def uvarint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


PLAIN = header(METADATA, 1)
FLEXIBLE = header(METADATA, 12, is_flexible=True)
ONE_EMPTY_TAG = b"\x01\x05\x00"
ONE_TOPIC_V12 = bytes(16) + b"\x02a"

BAD_FRAMES = {
    "size 0": struct.pack(">i", 0),
    "size -1": struct.pack(">i", -1),
    "the smallest size": struct.pack(">i", -(2**31)),
    "a size above socket.request.max.bytes": struct.pack(">i", 100 * MIB + 1),
    "the largest size": struct.pack(">i", 2**31 - 1),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "one byte": framed(b"\0"),
    "no client id": framed(struct.pack(">hhi", METADATA, 1, 1)),
    "a client id that is cut short": framed(struct.pack(">hhih", METADATA, 1, 1, 500), b"abc"),
    "a client id that is not UTF-8": framed(header(METADATA, 1, client_id=b"\xff\xfe"), struct.pack(">i", 0)),
    "an api key that is not served": framed(header(4, 0), bytes(20)),
    "an api key that nobody has": framed(header(32767, 0), bytes(20)),
    "a negative api key": framed(header(-1, 0), bytes(20)),
    "an api key of the brokers among themselves": framed(header(95, 0, is_flexible=True), bytes(20)),
    "a version too new": framed(header(METADATA, 14, is_flexible=True), bytes(20)),
    "a negative version": framed(header(METADATA, -1), bytes(20)),
    "a body cut short": framed(PLAIN, struct.pack(">ih", 1, 10), b"abc"),
    "a topic name that is not UTF-8": framed(PLAIN, struct.pack(">ih", 1, 2), b"\xff\xfe"),
    "more elements than bytes": framed(PLAIN, struct.pack(">i", 2**31 - 1)),
    "a negative count": framed(PLAIN, struct.pack(">i", -2)),
    "a compact count of four billion": framed(FLEXIBLE, uvarint(2**32 - 1), bytes(5)),
    "a varint of 400 KB": framed(FLEXIBLE, b"\x80" * 400_000, b"\x01"),
    "a million and one elements": framed(PLAIN, struct.pack(">i", MIB), b"\0\0" * MIB),
    "a million tags in the header": framed(
        struct.pack(">hhih", METADATA, 12, 1, 0), uvarint(MIB), b"\0\0" * MIB, bytes(5)
    ),
    "a million tags in the body": framed(FLEXIBLE, b"\x01\0\0", uvarint(MIB), b"\0\0" * MIB),
    "tags in each of many elements": framed(
        FLEXIBLE, uvarint(50_001), (ONE_TOPIC_V12 + ONE_EMPTY_TAG) * 50_000, bytes(4)
    ),
    "a tag larger than the frame": framed(FLEXIBLE, b"\x01\0\0\x01\x05", uvarint(2**31), bytes(5)),
    "records cut short": framed(
        header(PRODUCE, 3), struct.pack(">hhii h1s ii i", -1, -1, 100, 1, 1, b"t", 1, 0, 2**30), bytes(80)
    ),
    "ApiVersions with a body cut short": framed(header(API_VERSIONS, 3, is_flexible=True), b"\x7f"),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_a_bad_frame_closes_its_connection_and_is_logged_once(broker, data):
    assert_closed_and_logged_once(broker, data)


def test_requests_before_a_bad_frame_were_done(broker, wire, topic):
    create_topic(wire, topic)
    with broker.connect() as bad:
        good = bad.frame(produce_request(topic, {0: batch_of(b"v")}), 9)
        assert_closed_and_logged_once(broker, good + framed(b"\0"))

    fetched = wire.call(fetch_request(topic, {0: 0}, max_wait_ms=10_000), 12)
    assert read_values(fetched.responses[0].partitions[0].records) == [b"v"]


def test_bytes_behind_a_request_are_ignored_as_librdkafka_needs_it(wire):
    wire.send_bytes(framed(PLAIN, struct.pack(">i", 0), b"xyz"))
    assert wire.receive_frame()

    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_many_bad_connections_at_once_hold_nobody_up(broker, wire, topic):
    bad = [broker.connect() for _ in range(100)]
    try:
        for number, client in enumerate(bad):
            client.send_bytes([*BAD_FRAMES.values()][number % 8])
        assert wire.call(ApiVersionsRequest(), 0).error_code == 0
    finally:
        for client in bad:
            client.close()


def test_half_a_frame_keeps_nobody_else_waiting(broker, wire, topic):
    create_topic(wire, topic)
    halves = [broker.connect() for _ in range(20)]
    try:
        for client in halves:
            frame = client.frame(produce_request(topic, {0: batch_of(b"v" * 100_000)}), 9)
            client.send_bytes(frame[: len(frame) // 2])
        assert append(wire, topic, batch_of(b"whole")) == [0]
    finally:
        for client in halves:
            client.close()
    assert append(wire, topic, batch_of(b"still")) == [1]
    assert list_offset(wire, topic, -1).offset == 2


def test_a_frame_that_comes_byte_by_byte_is_answered(broker, wire, topic):
    create_topic(wire, topic)
    with broker.connect() as slow:
        slow.send_together(metadata_request(topic), version=12)
        assert slow.receive().topics[0].name == topic
        frame = slow.frame(ApiVersionsRequest(), 0)
        for position in range(len(frame)):
            slow.send_bytes(frame[position : position + 1])
            assert append(wire, topic, batch_of(b"%d" % position)) == [position]
        assert slow.receive_frame()


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 60_000, 70_000, 199_000])
def test_a_frame_is_the_same_however_it_is_cut(broker, wire, topic, cut):
    create_topic(wire, topic)
    value = random.randbytes(200_000)
    frame = wire.frame(produce_request(topic, {0: batch_of(value)}), 9)

    wire.send_bytes(frame[:cut])
    with broker.connect() as other:  # its answer shows that the broker has seen the first part
        assert list_offset(other, topic, -1).offset == 0
    wire.send_bytes(frame[cut:])
    assert wire.receive_frame()

    fetched = wire.call(fetch_request(topic, {0: 0}), 12).responses[0].partitions[0]
    assert read_values(fetched.records) == [value]


@pytest.mark.parametrize("api_key", REQUESTS)
def test_damaged_requests_are_answered_or_end_their_connection(broker, wire, topic, api_key):
    topic = f"damaged-{topic}-damaged"  # a damaged name must not be that of another test
    place = Place(topic, create_topic(wire, topic), f"group-of-{topic}")
    _, oldest, newest = CLIENT_APIS[api_key].supported
    for _ in range(60):
        with broker.connect(timeout_s=0.05) as bad:
            version = random.randint(oldest, newest)
            frame = bytearray(bad.frame(REQUESTS[api_key](place, version), version))
            for _ in range(random.randint(1, 4)):
                frame[random.randrange(12, len(frame))] = random.randrange(256)
            bad.send_bytes(frame)
            with suppress(TimeoutError):
                bad.receive_frame()

    assert wire.call(metadata_request(topic), 12).topics[0].error_code == 0


def test_a_topic_of_a_billion_partitions_is_refused_at_once(broker, wire, topic):
    work = Work(broker)
    began_s = work.so_far_s()

    [answer] = create_topics(wire, new_topic(topic, 2**31 - 1))

    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert work.so_far_s() - began_s < TOO_MUCH_S


def test_many_topics_whose_partitions_add_up_to_too_many_are_refused(wire, topic):
    answers = create_topics(wire, *(new_topic(f"{topic}-{number}", 4000) for number in range(3)))

    assert {answer.error_code for answer in answers} == {int(ErrorCode.POLICY_VIOLATION)}


def test_the_largest_frame_is_configured(new_broker, topic):
    broker = new_broker({"socket.request.max.bytes": "1000"})
    with broker.connect() as wire:
        create_topic(wire, topic)
        sizes = {}
        for size in range(800, 1000):
            request = produce_request(topic, {0: batch_of(b"v" * size)})
            sizes[len(wire.frame(request, 9)) - 4] = request
        assert wire.call(sizes[1000], 9).responses[0].partition_responses[0].error_code == 0
        assert_closed_and_logged_once(broker, struct.pack(">i", 1001))


def test_an_idle_connection_is_closed_also_in_the_middle_of_a_frame(new_broker):
    broker = new_broker({"connections.max.idle.ms": "300"})
    with broker.connect() as idle, broker.connect() as half, broker.connect() as waiting:
        waiting.send(fetch_request("absent", {}, max_wait_ms=1500, min_bytes=1), 12)
        half.send_bytes(struct.pack(">i", 1000) + bytes(10))
        assert half.is_closed()
        assert idle.is_closed()
        assert waiting.receive().error_code == 0


def test_connections_above_the_limit_are_refused_and_a_free_place_is_given_again(new_broker):
    broker = new_broker({"max.connections": "2"})
    with broker.connect() as first:
        first.call(ApiVersionsRequest(), 0)
        with broker.connect() as second:
            second.call(ApiVersionsRequest(), 0)
            with broker.connect() as third:
                assert third.is_closed()
            assert first.call(ApiVersionsRequest(), 0).error_code == 0

        def is_accepted():
            with broker.connect() as again, suppress(AssertionError, OSError):
                return again.call(ApiVersionsRequest(), 0).error_code == 0
            return False

        wait_until(is_accepted, "a free place")


TEN_ERRORS = """
node.idd=1
node.id=-3
num.partitions=none
log.retention.hours=-2
message.max.bytes=99999999999
log.message.timestamp.type=Never
wal_object_store=cloud
diskless.wal.object.prefix=../up
auto.create.topics.enable=perhaps
group.max.session.timeout.ms=1
"""


def test_a_configuration_with_ten_errors_is_told_in_ten_lines(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(TEN_ERRORS)

    diskless = Path(sys.executable).with_name("diskless")
    result = subprocess.run([diskless, "serve", "--config", path], capture_output=True, text=True, timeout=60)

    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 10, result.stderr
    for setting in [line.partition("=")[0] for line in TEN_ERRORS.split()]:
        assert sum(setting in line for line in lines) >= 1, setting
    assert "node.id" in next(line for line in lines if "node.idd" in line).replace("node.idd", "")
