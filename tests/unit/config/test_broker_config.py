"""The broker's settings: types, limits, and what depends on what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.listeners import Listener
from diskless_core.config.types import LogLevel, TimestampType
from diskless_core.groups.settings import GroupSettings

BOTH_PLAIN = "PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT"


def config(**texts):
    """A configuration from texts as they stand in a file, with underscores for dots in their keys."""
    return BrokerConfig.model_validate({key.replace("_", "."): text for key, text in texts.items()})


def test_a_laptop_gets_a_broker_on_loopback_that_creates_topics():
    broker = BrokerConfig()

    assert broker.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert broker.advertised_listeners == broker.listeners
    assert broker.admin_listener == Listener("http", "127.0.0.1", 9644)
    assert broker.auto_create_topics_enable
    assert broker.data_dir == Path("diskless-data")


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://broker-1.example:0", Listener("PLAINTEXT", "broker-1.example", 0)),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "::1", 9092)),
    ],
)
def test_listeners_are_read_and_written_as_kafka_writes_them(text, listener):
    broker = config(listeners=text)

    assert broker.listeners == (listener,)
    assert str(listener) == text
    assert broker.advertised_listeners == (listener,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least 1 item"),
        ("127.0.0.1:9092", "is not of the form <name>://<host>:<port>"),
        ("PLAINTEXT://127.0.0.1", "is not of the form"),
        ("PLAINTEXT://::1:9092", "is not of the form"),
        ("PLAINTEXT://127.0.0.1:65536", "port 65536 is above 65535"),
        ("SSL://127.0.0.1:9092", "'SSL' is not supported here, only PLAINTEXT"),
        ("PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093", "two listeners have the same name"),
    ],
)
def test_a_malformed_listener_is_refused(text, message):
    with pytest.raises(ValidationError, match=message):
        config(listeners=text)


@pytest.mark.parametrize("text", ["PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://[::]:9092"])
def test_who_listens_on_all_interfaces_has_to_say_what_is_advertised(text):
    with pytest.raises(ValidationError, match=r"set advertised\.listeners"):
        config(listeners=text)

    broker = config(listeners=text, advertised_listeners="PLAINTEXT://kafka.example:9092")
    assert broker.advertised_listeners == (Listener("PLAINTEXT", "kafka.example", 9092),)


def test_an_address_for_all_interfaces_cannot_be_advertised():
    with pytest.raises(ValidationError, match="which no client can connect to"):
        config(advertised_listeners="PLAINTEXT://0.0.0.0:9092")


def test_an_empty_admin_listener_switches_it_off():
    assert config(admin_listener="").admin_listener is None


@pytest.mark.parametrize("text", ["https://127.0.0.1:9644", "127.0.0.1:9644"])
def test_the_admin_listener_is_an_http_address(text):
    with pytest.raises(ValidationError):
        config(admin_listener=text)


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": "2"}, 7_200_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "-1"}, -1),
        ({"log_retention_minutes": "5", "log_retention_ms": ""}, 300_000),
    ],
)
def test_the_finest_retention_setting_holds(texts, retention_ms):
    assert config(**texts).retention_ms == retention_ms


def test_the_linger_time_follows_the_object_store_unless_it_is_set():
    assert BrokerConfig().append_linger_ms(requests_are_billed=False) == 0
    assert BrokerConfig().append_linger_ms(requests_are_billed=True) == 250
    assert config(diskless_append_linger_ms="7").append_linger_ms(requests_are_billed=True) == 7


@pytest.mark.parametrize(
    ("texts", "delay_ms"),
    [
        ({}, 100),
        ({"listeners": "PLAINTEXT://localhost:1,SSL://[::1]:2", "listener_security_protocol_map": BOTH_PLAIN}, 100),
        ({"listeners": "PLAINTEXT://:9092", "advertised_listeners": "PLAINTEXT://localhost:9092"}, 100),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092", "advertised_listeners": "PLAINTEXT://broker:9092"}, 3_000),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092"}, 3_000),
        ({"listeners": "PLAINTEXT://localhost:1,SSL://broker:2", "listener_security_protocol_map": BOTH_PLAIN}, 3_000),
        (
            {
                "listeners": "PLAINTEXT://localhost:1,SSL://broker:2",
                "listener_security_protocol_map": BOTH_PLAIN,
                "inter_broker_listener_name": "SSL",
            },
            100,
        ),
        ({"group_initial_rebalance_delay_ms": "0"}, 0),
        ({"group_initial_rebalance_delay_ms": "7", "listeners": "PLAINTEXT://10.0.0.1:9092"}, 7),
    ],
)
def test_a_new_group_waits_as_in_kafka_but_on_loopback_unless_it_is_set(texts, delay_ms):
    assert GroupSettings.of(config(**texts)).initial_rebalance_delay_ms == delay_ms


def test_of_several_log_dirs_the_first_is_used():
    assert config(log_dirs="/a, /b").data_dir == Path("/a")


def test_an_empty_rack_is_no_rack():
    assert config(broker_rack="").broker_rack is None


def test_kafkas_names_of_timestamp_types_are_understood():
    broker = config(log_message_timestamp_type="LogAppendTime")

    assert broker.log_message_timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_log_level_may_be_written_as_log4j_does():
    assert config(log_level="WARNING").log_level is LogLevel.WARNING


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"group_max_session_timeout_ms": "5"}, r"at least group\.min\.session\.timeout\.ms, which is 6000"),
        ({"diskless_append_inflight_max_bytes": "5"}, r"at least diskless\.append\.buffer\.max\.bytes"),
        ({"node_id": "-1"}, "greater than or equal to 0"),
        ({"num_partitions": "2147483648"}, "less than or equal to 2147483647"),
        ({"auto_create_topics_enable": "maybe"}, "valid boolean"),
        ({"log_level": "loud"}, "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_value_outside_of_its_limits_is_refused(texts, message):
    with pytest.raises(ValidationError, match=message):
        config(**texts)


@pytest.mark.parametrize("prefix", ["", "/wal", "wal/", "../wal", "a//b", "wal/..", "w\u00e4l"])
def test_the_object_prefix_is_a_relative_path_below_which_nothing_else_lies(prefix):
    with pytest.raises(ValidationError, match="relative path"):
        config(diskless_wal_object_prefix=prefix)


def test_every_setting_says_what_it_means_and_a_number_in_its_unit():
    units = {"ms": "milliseconds", "bytes": "bytes", "minutes": "minutes", "hours": "hours"}
    for name, field in BrokerConfig.model_fields.items():
        assert field.description.endswith((".", "?")), name
        unit = units.get(name.rsplit("_", 1)[-1])
        assert unit is None or unit in field.description, f"{name} does not name its unit"


def test_every_property_is_named_as_in_kafka_with_dots():
    for field in BrokerConfig.model_fields.values():
        assert re.fullmatch(r"[a-z]+[0-9]?(\.[a-z]+[0-9]?)*", field.alias)


def test_assignors_of_the_consumer_protocol_are_a_list_of_known_ones():
    assert config(group_consumer_assignors="range").group_consumer_assignors == ("range",)
    for wrong in ("mine", "", "range,mine"):
        with pytest.raises(ValidationError):
            config(group_consumer_assignors=wrong)


@pytest.mark.parametrize(
    "values",
    [
        {"group_consumer_session_timeout_ms": "44999"},
        {"group_consumer_session_timeout_ms": "60001"},
        {"group_consumer_heartbeat_interval_ms": "4999"},
        {"group_consumer_heartbeat_interval_ms": "15001"},
        {"group_consumer_min_session_timeout_ms": "10", "group_consumer_session_timeout_ms": "5000"},
    ],
)
def test_timeouts_of_the_consumer_protocol_keep_to_their_limits(values):
    with pytest.raises(ValidationError, match="it has to be"):
        config(**values)


def test_a_listener_may_have_any_name_that_is_mapped_to_a_protocol():
    broker = config(
        listeners="CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:9093",
        listener_security_protocol_map="CLIENTS:PLAINTEXT, BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
    )

    assert [listener.name for listener in broker.listeners] == ["CLIENTS", "BROKERS"]
    assert broker.inter_broker_listener_name == "BROKERS"
    assert BrokerConfig().inter_broker_listener_name is None


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"listeners": "OTHER://127.0.0.1:9092"}, "'OTHER' has no protocol: add it to listener.security.protocol.map"),
        (
            {"listeners": "SAFE://127.0.0.1:9092", "listener_security_protocol_map": "SAFE:SSL"},
            "'SSL' is not supported here, only PLAINTEXT",
        ),
        ({"listener_security_protocol_map": "PLAINTEXT"}, "is not of the form <name>:<protocol>"),
        ({"listener_security_protocol_map": "PLAINTEXT:TLS"}, "with one of PLAINTEXT, SSL"),
        ({"listener_security_protocol_map": "A:SSL,A:SSL"}, "two entries have the same name"),
        ({"inter_broker_listener_name": "BROKERS"}, "'BROKERS' is not the name of one of the listeners"),
        ({"inter_broker_listener_name": "PLAINTEXT"}, "'PLAINTEXT' is the only listener: clients need one"),
        (
            {
                "listeners": "PLAINTEXT://127.0.0.1:9092,BROKERS://:9093",
                "advertised_listeners": "PLAINTEXT://kafka.example:9092",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
                "inter_broker_listener_name": "BROKERS",
            },
            "advertised.listeners has to say where brokers reach it",
        ),
    ],
)
def test_listeners_that_cannot_be_served_or_reached_are_refused(texts, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        config(**texts)


def test_a_protocol_map_may_have_more_than_is_listened_on():
    text = "PLAINTEXT:PLAINTEXT,SAFE:SASL_SSL"

    assert [str(entry) for entry in config(listener_security_protocol_map=text).listener_security_protocol_map] == [
        "PLAINTEXT:PLAINTEXT",
        "SAFE:SASL_SSL",
    ]


def test_a_broker_may_leave_its_node_id_to_the_cluster():
    assert config().node_id == 1
    assert not config(node_id="7").asks_for_node_id
    assert config(node_id="auto").asks_for_node_id


@pytest.mark.parametrize("text", ["-1", "-auto", "Auto", "", "one", "2147483648"])
def test_a_node_id_is_a_number_or_auto(text):
    with pytest.raises(ValidationError, match=r"node\.id"):
        config(node_id=text)
