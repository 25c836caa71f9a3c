"""Records as lines: what `consume` writes, `produce` reads."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.cli.client.records import Record, RecordError, reader, record_of_json, writer

CREATE_TIME, LOG_APPEND_TIME = 1, 2
CONTENTS = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
NAMES = st.text(min_size=1, max_size=5)


def message(value=b"value", key=b"key", headers=None, timestamp=(CREATE_TIME, 1_500)):
    return Message("orders", 3, 42, key, value, headers, None, timestamp)


@given(value=CONTENTS, key=CONTENTS, headers=st.lists(st.tuples(NAMES, CONTENTS), max_size=3))
def test_json_gives_back_any_record(value, key, headers):
    line = writer("json", None)(message(value, key, headers))

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert record_of_json(line) == Record(value=value, key=key, headers=tuple(headers), partition=3, timestamp_ms=1_500)


@pytest.mark.parametrize("name", ["base64", "hex"])
@given(value=st.binary(max_size=20), key=st.binary(max_size=20))
def test_base64_and_hex_give_back_any_bytes(name, value, key):
    line = writer(name, ":")(message(value, key))

    assert reader(name, ":")(line.removesuffix(b"\n")) == Record(value=value, key=key)


def test_the_shape_of_json_is_the_documented_one():
    line = writer("json", None)(message(b"\xff", None, [("a", b"b"), ("n", None)], (LOG_APPEND_TIME, 7)))

    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 7,
        "timestamp_type": "log_append_time",
        "headers": [{"name": "a", "value": "b"}, {"name": "n", "value": None}],
        "key": None,
        "value_base64": "/w==",
    }


def test_text_is_the_value_or_the_key_and_the_value():
    assert writer("text", None)(message()) == b"value\n"
    assert writer("text", r"\t")(message()) == b"key\tvalue\n"
    assert writer("text", ":")(message(None, None)) == b":\n"
    assert reader("text", None)(b"a:b") == Record(value=b"a:b")
    assert reader("text", ":")(b"a:b:c") == Record(key=b"a", value=b"b:c")
    with pytest.raises(RecordError, match="no key separator"):
        reader("text", ":")(b"ab")


def test_a_format_has_a_directive_for_each_part_of_a_record():
    write = writer(r"%t %p %o %k=%v\t%s %T %D %h %K %S %%", None)

    assert write(message(headers=[("a", b"b"), ("c", b"d")])) == (
        b"orders 3 42 key=value\tvalue 1500 1970-01-01T00:00:01.500Z a=b,c=d 3 5 %\n"
    )


@pytest.mark.parametrize("wrong", ["%x", "100%", "csv"])
def test_an_unknown_format_is_refused_with_those_that_there_are(wrong):
    with pytest.raises(RecordError, match=r"no directive|no format"):
        writer(wrong, None)
    with pytest.raises(RecordError, match="give one of text, json, base64, hex"):
        reader(wrong, None)


def test_json_values_that_are_no_text_are_kept_as_compact_json():
    assert record_of_json(b'{"key": 7, "value": {"a": [1, "\xc3\xa4"]}}') == Record(
        key=b"7", value='{"a":[1,"ä"]}'.encode()
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "the line is not JSON"),
        (b"[1]", "the line is not a JSON object"),
        (b'{"id": 1}', "no field 'id'"),
        (b'{"key": "a"}', "there is no value"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "?"}', "not base64"),
        (b'{"value_base64": 1}', "is not text"),
        (b'{"value": "a", "headers": {"a": "b"}}', "headers are not a list"),
        (b'{"value": "a", "partition": -1}', "partition is not a number"),
        (b'{"value": "a", "timestamp": "now"}', "timestamp is not a number"),
    ],
)
def test_what_is_no_record_is_refused_with_what_is_expected(line, told):
    with pytest.raises(RecordError, match=told):
        record_of_json(line)
