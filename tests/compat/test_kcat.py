"""kcat from Debian, an older librdkafka: produce, consume, groups, metadata, offsets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.compat.clients import CODECS
from tests.support.batches import timed_batch
from tests.support.requests import append, create_topic

KCAT = shutil.which("kcat")
IS_REQUIRED = os.environ.get("DISKLESS_REQUIRE_KCAT") == "1"
TIMEOUT_S = 300
NOW_MS = 1_700_000_000_000

pytestmark = pytest.mark.skipif(KCAT is None and not IS_REQUIRED, reason="kcat is not installed: apt-get install kcat")


@pytest.fixture
def kcat(broker):
    """Run kcat against the shared broker; what it wrote comes back."""

    def run(*arguments, stdin="", exit_code=0):
        assert KCAT is not None, "DISKLESS_REQUIRE_KCAT=1 is set but kcat is not installed"
        result = subprocess.run(
            [KCAT, "-b", broker.bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert result.returncode == exit_code, result.stderr
        return result.stdout if exit_code == 0 else result.stderr

    return run


def consumed(kcat, topic, *arguments):
    """Everything from the beginning, as kcat's JSON has it."""
    lines = kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", *arguments).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("idempotent", ["false", "true"])
@pytest.mark.parametrize("codec", CODECS)
def test_lines_of_every_codec_come_back_in_order(kcat, wire, topic, codec, idempotent):
    create_topic(wire, topic)
    lines = [f"line {number} " * 20 for number in range(200)]

    kcat("-P", "-t", topic, "-p", "0", "-z", codec, "-X", f"enable.idempotence={idempotent}", stdin="\n".join(lines))

    assert [(record["offset"], record["payload"]) for record in consumed(kcat, topic)] == list(enumerate(lines))


def test_keys_nulls_headers_and_timestamps(kcat, wire, topic):
    create_topic(wire, topic)

    kcat("-P", "-t", topic, "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", stdin="k1:v1\nk2:\n")

    first, second = consumed(kcat, topic)
    assert (first["key"], first["payload"], first["headers"]) == ("k1", "v1", ["a", "1", "b", "2"])
    assert (second["key"], second["payload"]) == ("k2", None)
    assert first["tstype"] == "create"


def test_log_append_time(kcat, wire, topic):
    create_topic(wire, topic, message_timestamp_type="LogAppendTime")

    kcat("-P", "-t", topic, stdin="v\n")

    assert consumed(kcat, topic)[0]["tstype"] == "logappend"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kcat, wire, topic, acks):
    create_topic(wire, topic)

    kcat("-P", "-t", topic, "-X", f"acks={acks}", stdin="a\nb\n")

    records = kcat("-C", "-t", topic, "-o", "beginning", "-c", "2", "-q", "-f", "%o %s\n")
    assert records == "0 a\n1 b\n"


def test_a_group_goes_on_where_it_stopped(kcat, wire, topic):
    create_topic(wire, topic, 2)
    group = ["-G", f"group-of-{topic}", "-q", "-e", "-X", "auto.offset.reset=earliest", "-f", "%s\n", topic]
    kcat("-P", "-t", topic, "-p", "0", stdin="a\nb\n")
    kcat("-P", "-t", topic, "-p", "1", stdin="c\n")

    first = kcat(*group)
    kcat("-P", "-t", topic, "-p", "1", stdin="d\n")
    second = kcat(*group)

    assert sorted(first.split()) == ["a", "b", "c"]
    assert second.split() == ["d"]


def test_metadata_lists_brokers_and_topics(kcat, broker, wire, topic):
    create_topic(wire, topic, 3)

    listed = json.loads(kcat("-L", "-J"))

    assert [entry["name"] for entry in listed["brokers"]] == [broker.bootstrap]
    [found] = [entry for entry in listed["topics"] if entry["topic"] == topic]
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1, 2]


def test_offsets_by_time(kcat, wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 10, NOW_MS + 20))

    assert kcat("-Q", "-t", f"{topic}:0:{NOW_MS + 5}").split() == [topic, "[0]", "offset", "1"]
    assert kcat("-Q", "-t", f"{topic}:0:-1").split()[-1] == "3"


def test_a_message_above_max_message_bytes_is_an_error(kcat, wire, topic):
    create_topic(wire, topic, max_message_bytes="1000")

    message = kcat("-P", "-t", topic, stdin="v" * 2000, exit_code=1)

    assert "too large" in message.lower()
