"""`diskless topics`, `groups`, `produce` and `consume` as a shell runs them: pipes, signals, members, no broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from diskless_core.cli.client import cluster, options
from diskless_core.cli.main import main
from tests.support.requests import create_topic

DISKLESS = str(Path(sys.executable).with_name("diskless"))


def diskless(*arguments, stdin=None):
    return CliRunner().invoke(main, arguments, input=stdin)


@pytest.fixture
def started():
    """Start a command in a process of its own."""
    processes = []

    def start(*arguments):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen([DISKLESS, *arguments], **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_consumer_follows_until_nobody_reads_it_or_it_is_interrupted(broker, topic, wire, started):
    create_topic(wire, topic)
    with_reader, interrupted = (started("consume", topic, "-b", broker.bootstrap) for _ in range(2))
    assert diskless("produce", topic, "-b", broker.bootstrap, stdin="one\n").exit_code == 0

    assert with_reader.stdout.readline() == b"one\n"
    with_reader.stdout.close()
    assert interrupted.stdout.readline() == b"one\n"
    interrupted.send_signal(signal.SIGINT)

    for process in (with_reader, interrupted):
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_interrupting_a_producer_ends_its_input_and_loses_nothing(broker, topic, wire, started):
    create_topic(wire, topic)
    producer = started("produce", topic, "-b", broker.bootstrap)
    producer.stdin.write(b"one\ntwo\n")
    producer.stdin.flush()

    consumed = diskless("consume", topic, "-n", "2", "-b", broker.bootstrap)
    producer.send_signal(signal.SIGTERM)

    assert consumed.stdout == "one\ntwo\n"
    assert producer.wait(60) == 0
    assert producer.stderr.read() == f"wrote 2 records to {topic}\n".encode()


def test_a_malformed_line_is_named_and_what_precedes_it_is_written(broker, topic, wire):
    create_topic(wire, topic)

    done = diskless(
        "produce", topic, "-f", "json", "-b", broker.bootstrap, stdin='{"value": "a"}\n{}\n{"value": "b"}\n'
    )

    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f"wrote 1 record to {topic}",
        "standard input:2: there is no value: give null for a tombstone",
    ]
    assert diskless("consume", topic, "-u", "end", "-b", broker.bootstrap).stdout == "a\n"


def test_a_record_that_is_too_large_says_what_raises_the_limit(broker, topic, wire):
    create_topic(wire, topic, max_message_bytes="1000")
    done = diskless("produce", topic, "-b", broker.bootstrap, stdin="x" * 2000)
    assert done.exit_code == 1
    assert f"`diskless topics alter {topic} --config max.message.bytes=...` raises the limit\n" in done.stderr
    assert done.stderr.endswith("1 record not written: Broker: Message size too large (1)\n")


def test_a_group_with_members_shows_who_reads_what_and_is_not_reset(broker, topic, wire):
    create_topic(wire, topic)
    group = f"group-of-{topic}"
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader"})
    try:
        member.subscribe([topic])
        deadline = time.monotonic() + 60
        while not member.assignment():
            assert time.monotonic() < deadline, "nothing is assigned"
            member.poll(0.05)
        described = json.loads(diskless("groups", "describe", group, "--json", "-b", broker.bootstrap).stdout)[0]
        table = diskless("groups", "describe", group, "-b", broker.bootstrap).stdout
        reset = diskless("groups", "reset", group, "--to", "0", "--topic", topic, "-b", broker.bootstrap)
    finally:
        member.close()

    (shown,) = described["members"]
    assert (described["state"], shown["client_id"]) == ("Stable", "reader")
    assert shown["assignment"] == [{"topic": topic, "partition": 0}]
    assert described["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed_offset": None,
            "end_offset": 0,
            "lag": None,
            "member_id": shown["member_id"],
        }
    ]
    assert shown["member_id"] in table
    assert reset.exit_code == 1
    assert f"the group {group} is Stable with 1 member: stop its consumers first" in reset.stderr


def test_names_are_completed_by_asking_the_broker(broker, topic, wire, monkeypatch):
    create_topic(wire, topic)
    monkeypatch.setenv("DISKLESS_BOOTSTRAP_SERVERS", broker.bootstrap)
    monkeypatch.setenv("_DISKLESS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"diskless topics describe {topic}")
    monkeypatch.setenv("COMP_CWORD", "3")

    completed = CliRunner().invoke(main, [], prog_name="diskless")

    assert topic in completed.stdout.splitlines()


def test_without_a_broker_a_command_says_in_a_line_what_to_do(monkeypatch):
    monkeypatch.setattr(cluster, "REFUSED_TIMEOUT_S", 0.3)

    done = diskless("topics", "list", "-b", "127.0.0.1:1")

    assert done.exit_code == 1
    assert "no Kafka broker answers at 127.0.0.1:1 (" in done.stderr
    assert "Connection refused): start one with `diskless serve`" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_tls_file_that_is_missing_is_named_before_any_broker_is_asked(tmp_path):
    missing = tmp_path / "missing.pem"
    failed = diskless("topics", "list", "-X", "security.protocol=SSL", "-X", f"ssl.ca.location={missing}")
    assert failed.exit_code == 1
    assert failed.stderr == (
        f"[Errno 2] No such file or directory: '{missing}': correct --command-config or --command-property\n"
    )


def test_single_properties_precede_the_address_which_precedes_the_file(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nsecurity.protocol=SSL\nssl.ca.location=ca.pem\n", encoding="utf-8")

    assert options.client_properties(None, None, None) == {"bootstrap.servers": "127.0.0.1:9092"}
    assert options.client_properties(None, file, ["security.protocol=SASL_SSL"]) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
    }
    assert options.client_properties("b:2", file, [])["bootstrap.servers"] == "b:2"


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "alter", "t"),
        ("topics", "create", "t", "--config", "retention.ms"),
        ("groups", "reset", "g"),
        ("groups", "reset", "g", "--to", "0", "--shift-by", "1"),
        ("groups", "reset", "g", "--to", "yesterday"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--until", "2999-01-01"),
        ("consume", "t", "--group", "g", "--partition", "0"),
        ("consume", "t", "--group", "g", "--from", "5"),
        ("consume", "t", "--format", "csv"),
        ("consume", "t", "--skip-damaged", "--group", "g"),
        ("consume", "t", "--skip-damaged", "-X", "security.protocol=ssl"),
        ("produce", "t", "--format", "csv"),
        ("topics", "list", "-X", "acks"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_before_any_broker_is_asked(arguments):
    assert diskless(*arguments, "-b", "127.0.0.1:1").exit_code == 2
