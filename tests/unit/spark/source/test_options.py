"""The options of the source: what they mean, and what is said of bad ones."""

from __future__ import annotations

import pytest

from diskless_spark.source.decoding import Place
from diskless_spark.source.options import EARLIEST, LATEST, Missing, SourceOptionError, check, parse


def batch(**options: str):
    return parse({"subscribe": "a"} | options, is_stream=False)


def test_names_in_any_case_as_spark_tells_them():
    found = parse({"SUBSCRIBE": " a, b,a", "includeheaders": "TRUE", "minpartitions": "7"}, is_stream=False)
    assert found.subscription.topics == ("a", "b")
    assert (found.include_headers, found.min_partitions) == (True, 7)


def test_defaults_of_batches_and_streams():
    stream = parse({"subscribePattern": "a.*"}, is_stream=True)
    assert (batch().starting.default, batch().ending.default) == (EARLIEST, LATEST)
    assert (stream.starting.default, stream.subscription.pattern) == (LATEST, "a.*")
    assert batch().fail_on_data_loss
    assert batch().max_offsets_per_trigger is None


def test_single_partitions():
    found = parse({"assign": '{"a": [0, 2], "b": [1]}'}, is_stream=False).subscription
    assert found.names() == ("a", "b")
    assert found.wants(Place("a", 2))
    assert not found.wants(Place("a", 1))


def test_of_times_and_offsets_the_first_one_holds():
    both = {"startingTimestamp": "5", "startingOffsets": "latest"}
    assert batch(**both).starting.timestamp_ms == 5
    by_time = batch(startingOffsetsByTimestamp='{"a": {"0": 9}}', startingOffsetsByTimestampStrategy="latest")
    assert by_time.starting.timestamps_ms == {Place("a", 0): 9}
    assert by_time.starting_missing is Missing.IS_THE_END
    assert batch(startingOffsets='{"a": {"0": 4, "1": -2}}').starting.offsets == {Place("a", 0): 4, Place("a", 1): -2}


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("", 900_000), ("90S", 90_000), ("1500", 1_500), ("20 ms", 20), ("2min", 120_000), ("1d", 86_400_000)],
)
def test_how_long_a_stream_waits_for_enough(text, delay_ms):
    given = {"maxTriggerDelay": text} if text else {}
    found = parse({"subscribe": "a", "minOffsetsPerTrigger": "10", **given}, is_stream=True)
    assert (found.min_offsets_per_trigger, found.max_trigger_delay_ms) == (10, delay_ms)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "11 is more than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "1m"}, "no meaning without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "1 week"}, "500ms, 90s or 15m"),
        ({"minOffsetsPerTrigger": "0"}, "greater than 0"),
    ],
)
def test_limits_that_cannot_be_kept(options, message):
    with pytest.raises(SourceOptionError, match=message):
        parse({"subscribe": "a"} | options, is_stream=True)


def test_settings_of_backends_are_kept_apart():
    found = batch(**{"wal_object_store.fsspec.url": "s3://b", "remote_storage": "fsspec"})
    assert found.settings == {"wal_object_store.fsspec.url": "s3://b", "remote_storage": "fsspec"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, "assign and subscribe"),
        ({}, "there is none"),
        ({"subscribe": " ,"}, "names no topic"),
        ({"subscribePattern": "a("}, r"^subscribePattern: 'a\(' is no regular expression: missing \)"),
        ({"subscribePattern": "[[:alpha:]]+"}, "^subscribePattern: .* does not mean the same everywhere"),
        ({"assign": '{"a": []}'}, "of the form"),
        ({"assign": '{"a": [true]}'}, "of the form"),
        ({"assign": "x"}, "no JSON"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "b:1"}, "reads the bucket"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "no meaning for a batch query"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "5"}, "no meaning for a batch query"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot begin at the latest offset"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot end at the earliest offset"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "cannot end at the earliest offset"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "no offset"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 1}}'}, "of the form"),
        ({"subscribe": "a", "startingOffsets": "first"}, "no JSON"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "is no time"),
        ({"subscribe": "a", "minPartitions": "0"}, "greater than 0"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "true or false"),
        ({"subscribe": "a", "diskless.snapshot": "s3"}, "broker or bucket"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "error or latest"),
    ],
)
def test_bad_ones(options, message):
    with pytest.raises(SourceOptionError, match=message):
        parse(options, is_stream=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(SourceOptionError, match="no meaning for a stream"):
        parse({"subscribe": "a", name: "1"}, is_stream=True)


def test_each_time_and_offset_knows_the_option_that_says_so():
    names = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    values = ("5", '{"a": {"0": 9}}', '{"a": {"0": 4}}')
    for name, value in zip(names, values, strict=True):
        assert batch(**{name: value}).starting.option == name
    assert (batch().starting.option, batch().ending.option) == ("startingOffsets", "endingOffsets")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger: it has to be a whole number"),
        ({"endingTimestamp": "later"}, "endingTimestamp: it has to be a whole number"),
        ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "is more than"),
    ],
)
def test_what_no_kind_of_query_can_use_is_told_before_one_begins(options, message):
    with pytest.raises(SourceOptionError, match=message):
        check({"subscribe": "a"} | options)


@pytest.mark.parametrize(
    "options", [{}, {"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"maxOffsetsPerTrigger": "1"}]
)
def test_what_one_kind_of_query_can_use_is_left_to_it(options):
    check({"subscribe": "a"} | options)
