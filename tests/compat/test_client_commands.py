"""`diskless topics`, `groups`, `produce` and `consume` on Diskless and on a real Apache Kafka: they do the same."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from diskless_core.cli.main import main
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import BrokerProcess

Command = Callable[..., str]
OWN = (
    '{"value": "a", "key": "k", "partition": 1, "timestamp": 1000, "headers": [{"name": "h", "value_base64": "/w=="}]}'
)


def command_on(bootstrap: str) -> Command:
    def run(*arguments: str, stdin: str | None = None, code: int = 0) -> str:
        done = CliRunner().invoke(main, [*arguments, "-b", bootstrap], input=stdin)
        assert done.exit_code == code, (arguments, done.output, done.exception)
        return done.stdout if code == 0 else done.stderr

    return run


@pytest.fixture(params=["diskless", "kafka"])
def command(request: pytest.FixtureRequest) -> Command:
    if request.param == "diskless":
        broker: BrokerProcess = request.getfixturevalue("broker")
        return command_on(broker.bootstrap)
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return command_on(kafka.bootstrap)


def test_topics_are_created_listed_described_altered_and_deleted(command, topic):
    command("topics", "create", topic, "-p", "2", "--config", "retention.ms=100000", "--config", "segment.ms=90000")

    assert f"the topic {topic} exists" in command("topics", "create", topic, code=1)
    assert command("topics", "create", topic, "--if-not-exists") == f"{topic} exists\n"
    assert "no.such" in command("topics", "create", f"{topic}-not", "--config", "no.such=1", code=1)
    assert topic in [listed["name"] for listed in json.loads(command("topics", "list", "--json"))]
    assert "__consumer_offsets" not in command("topics", "list")
    command("topics", "alter", topic, "-p", "3", "--config", "retention.ms=200000", "--delete-config", "segment.ms")
    command("produce", topic, "-p", "2", "-q", stdin="one\ntwo\n")
    (described,) = json.loads(command("topics", "describe", topic, "--json"))
    assert set(described) == {"name", "id", "internal", "replication_factor", "config", "partitions"}
    assert (described["config"], described["replication_factor"]) == ({"retention.ms": "200000"}, 1)
    assert described["partitions"][2] == {
        "partition": 2,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "earliest_offset": 0,
        "latest_offset": 2,
    }
    assert command("topics", "describe", topic).splitlines() == [
        f"{topic}: 3 partitions, replication factor 1, id {described['id']}",
        "  retention.ms=200000",
        "partition  leader  replicas  isr  earliest offset  latest offset",
        "        0       1  1         1                  0              0",
        "        1       1  1         1                  0              0",
        "        2       1  1         1                  0              2",
    ]
    assert command("topics", "delete", topic, stdin="n\n", code=1).startswith(f"Delete {topic} of ")
    assert command("topics", "delete", topic, "--yes") == f"deleted {topic}\n"
    assert f"there is no topic {topic}" in command("topics", "describe", topic, code=1)
    assert f"there is no topic {topic}" in command("topics", "delete", topic, "--yes", code=1)
    assert command("topics", "delete", topic, "--yes", "--if-exists") == f"there is no {topic}\n"


def test_what_is_produced_is_consumed_from_and_until_any_position(command, topic, tmp_path):
    command("topics", "create", topic, "-p", "2")
    (tmp_path / "lines").write_bytes(b"x\ty\r\n\tz")
    command("produce", topic, "-f", "json", stdin=OWN)
    command("produce", topic, "-K", r"\t", "-p", "0", "-H", "a=b", str(tmp_path / "lines"))
    command("produce", topic, "-k", "key", "-p", "0", "--whole", "-", stdin="one\nrecord\n")

    def consumed(*options: str) -> str:
        return command("consume", topic, *options, "--until", "end")

    assert consumed("-p", "0", "-f", "%p %o %k %v %h") == "0 0 x y a=b\n0 1  z a=b\n0 2 key one\nrecord\n \n"
    (own,) = consumed("-p", "1", "--json").splitlines()
    assert json.loads(OWN).items() <= json.loads(own).items()
    assert sorted(consumed("--from", "-1").splitlines()) == ["", "a", "one", "record"]
    assert consumed("-p", "0", "--from", "1", "-n", "1", "-K", ":") == ":z\n"
    assert consumed("-p", "1", "--from", "-1h") == ""
    assert consumed("-p", "1", "--from", "1970-01-01T00:00:01Z") == "a\n"
    assert consumed("-p", "0", "--from", "end") == ""
    assert command("consume", topic, "-p", "0", "-f", "hex", "--until", "1") == "79\n"
    assert "has no partition 7: it has 2 partitions, from 0 on" in command("consume", topic, "-p", "7", code=1)
    assert "has no partition 7: it has 2 partitions, from 0 on" in command(
        "produce", topic, "-p", "7", stdin="", code=1
    )
    assert f"there is no topic {topic}-not" in command("consume", f"{topic}-not", code=1)


def test_a_group_goes_on_where_it_was_and_can_be_reset(command, topic):
    group = f"group-of-{topic}"
    command("topics", "create", topic)
    command("produce", topic, stdin="".join(f"{number}\n" for number in range(10)))

    assert f"there is no group {group}" in command("groups", "describe", group, code=1)
    assert command("consume", topic, "-g", group, "-n", "4") == "0\n1\n2\n3\n"
    assert command("consume", topic, "-g", group, "-u", "end") == "4\n5\n6\n7\n8\n9\n"
    reset = ("groups", "reset", group, "--json")
    assert json.loads(command(*reset, "--to", "3")) == {
        "name": group,
        "executed": False,
        "partitions": [{"topic": topic, "partition": 0, "committed_offset": 10, "new_offset": 3}],
    }
    (described,) = json.loads(command("groups", "describe", group, "--json"))
    assert (described["state"], described["type"], described["members"]) == ("Empty", "Classic", [])
    assert described["partitions"] == [
        {"topic": topic, "partition": 0, "committed_offset": 10, "end_offset": 10, "lag": 0, "member_id": None}
    ]
    command(*reset, "--shift-by", "-2", "--topic", f"{topic}:0", "--execute")
    assert command("consume", topic, "-g", group, "-u", "end") == "8\n9\n"
    command(*reset, "--to", "-1h", "--execute")
    assert f"{topic}          0                 0          10   10" in command("groups", "describe", group)
    listed = {"name": group, "state": "Empty", "type": "Classic"}
    assert listed in json.loads(command("groups", "list", "--json"))
    assert command("groups", "delete", group, "--yes") == f"deleted {group}\n"
    assert f"there is no group {group}" in command("groups", "delete", group, "--yes", code=1)


def test_records_that_the_broker_refuses_are_counted_and_the_others_are_written(command, topic):
    command("topics", "create", topic, "--config", "max.message.bytes=1000")

    one_a_batch = ("-X", "batch.num.messages=1")
    told = command("produce", topic, *one_a_batch, stdin=f"small\n{'x' * 2000}\nlast\n", code=1)

    assert "wrote 2 records" in told
    assert "1 record not written: Broker: Message size too large (1)" in told
    assert command("consume", topic, "--until", "end") == "small\nlast\n"
