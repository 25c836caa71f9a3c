"""Produce: what is accepted, what is refused and how."""

from __future__ import annotations

from typing import Any

from tests.differential.language import NO_ID, UNKNOWN_ID, Made, The, scenario
from tests.differential.words import (
    LATEST,
    batch,
    fetch,
    forgotten_producer,
    joined,
    list_offsets,
    lying,
    moment_later,
    new_producer,
    on,
    produce,
    produce_to,
    timed,
    topic,
    unanswered,
    until,
)
from tests.support.batches import NOW_MS, batch_of, with_header

HOUR_MS = 3_600_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TEXT = b"a text that repeats itself, " * 20
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME = 0x10, 0x20, 0x08
PRODUCE_VERSIONS = "Produce 3 7 8 13"


def numbered(sequence: int, *values: bytes, epoch: int = 0, **header: Any) -> Made:
    """A batch of the producer whose id was saved."""
    return batch(*values, producer_id=The("pid"), producer_epoch=epoch, base_sequence=sequence, **header)


def damaged(good: Made) -> Made:
    """A batch whose compressed records end in zeroes."""
    return Made(lambda whole: with_header(whole[:-9] + bytes(9)), (good,))


SCENARIOS = (
    scenario(
        "produce and fetch",
        topic(partitions=2),
        produce(batch(b"a", b"b"), batch(b"c")),
        produce(batch(b"d")),
        fetch(0, 0),
        about="Produce",
    ),
    scenario(
        "produce to what does not exist",
        topic(),
        produce(batch(), topic="$-absent", topic_id=NO_ID),
        produce(batch(), partition=1),
        produce(batch(), partition=-1),
        produce(batch(), batch(), batch()),
        fetch(0),
        about="Produce",
    ),
    scenario(
        "produce by an unknown id",
        topic(partitions=2),
        produce(batch(), topic_id=UNKNOWN_ID),
        produce_to(
            [
                {"topic_id": found, "partition_data": [{"index": index, "records": batch()} for index in (0, 2)]}
                for found in (The("id"), UNKNOWN_ID)
            ]
        ),
        fetch(0, 0),
        about="Produce 13",
    ),
    scenario(
        "produce with every acks",
        topic(),
        *(produce(batch(), acks=acks) for acks in (-1, 1, 2, -2, 127)),
        unanswered(produce(batch(b"silent"), acks=0)),
        until(list_offsets(-1), {"topics.0.partitions.0.offset": 3}, shown=True),
        fetch(0),
        about="Produce 3 12 13",
    ),
    scenario(
        "an error of a produce request without acks closes the connection",
        topic(),
        unanswered(on("silent", produce(batch(), topic="$-absent", topic_id=NO_ID, acks=0))),
        on("silent", fetch(0)),
        about="Produce ends",
    ),
    scenario(
        "produce a damaged batch",
        topic(),
        produce(lying(batch(), crc=1)),
        produce(lying(batch(), last_offset_delta=1)),
        produce(lying(batch(b"a", b"b"), last_offset_delta=0)),
        produce(lying(batch(b"a", b"b"), record_count=1)),
        produce(lying(batch(), record_count=-1)),
        produce(lying(batch(), batch_length=7)),
        produce(Made(lambda good: good[:-1], (batch(),))),
        fetch(0),
        about=PRODUCE_VERSIONS,
    ),
    scenario(
        "produce a batch and something behind it",
        topic(),
        produce(joined(batch(), b"\0\0\0")),
        about=PRODUCE_VERSIONS,
        differs=("bytes behind a batch",),
    ),
    scenario(
        "produce another magic",
        topic(),
        *(produce(lying(batch(), magic=magic)) for magic in (0, 1, 3, -1)),
        about=PRODUCE_VERSIONS,
    ),
    scenario(
        "produce nothing, or more than one batch",
        topic(),
        produce(b""),
        produce(joined(batch(), batch())),
        produce(lying(batch(), record_count=0)),
        fetch(0),
        about=PRODUCE_VERSIONS,
    ),
    scenario(
        "produce to a partition twice in a request",
        topic(),
        produce_to(
            [
                {
                    "name": "$",
                    "topic_id": The("id"),
                    "partition_data": [{"index": 0, "records": batch(b"a")}, {"index": 0, "records": batch(b"b")}],
                }
            ]
        ),
        differs=("a partition twice",),
    ),
    scenario("produce to no topic", topic(), produce_to([]), produce(), about=PRODUCE_VERSIONS),
    scenario(
        "produce a batch that is too large",
        topic(max_message_bytes="200"),
        produce(batch(b"x" * 200)),
        produce(batch(b"x" * 100)),
        produce(batch(b"x" * 131)),
        produce(batch(b"x" * 132)),
        produce(batch(b"x" * 133)),
        fetch(0),
        about=PRODUCE_VERSIONS,
    ),
    scenario(
        "produce with every codec",
        topic(),
        *(produce(batch(b"a" * 50, b"b" * 50, compression=codec)) for codec in (GZIP, SNAPPY, LZ4, ZSTD)),
        fetch(0),
        about=PRODUCE_VERSIONS,
    ),
    *(
        scenario(
            f"produce to a topic that wants {name}",
            topic(compression_type=name, message_timestamp_type=timestamps),
            new_producer(),
            *(
                produce(numbered(2 * place, TEXT, TEXT, compression=codec))
                for place, codec in enumerate((NONE, GZIP, SNAPPY, LZ4, ZSTD))
            ),
            produce(numbered(8, TEXT, TEXT, compression=ZSTD)),
            produce(timed(NOW_MS + 5, NOW_MS, NOW_MS + 9)),
            produce(timed(NOW_MS, NOW_MS + 7, compression=GZIP)),
            fetch(0),
            list_offsets(LATEST),
            differs=("the append time of a duplicate",) if timestamps == "CreateTime" else (),
        )
        for name, timestamps in (
            ("uncompressed", "CreateTime"),
            ("gzip", "LogAppendTime"),
            ("snappy", "CreateTime"),
            ("lz4", "CreateTime"),
            ("zstd", "LogAppendTime"),
        )
    ),
    scenario(
        "produce to a topic that wants a codec at a level",
        topic(compression_type="zstd", compression_zstd_level="19"),
        topic("$-gzip", save="gzip", compression_type="gzip", compression_gzip_level="1"),
        topic("$-lz4", save="lz4", compression_type="lz4", compression_lz4_level="17"),
        produce(batch(TEXT)),
        produce(batch(TEXT), topic="$-gzip", topic_id=The("gzip")),
        produce(batch(TEXT), topic="$-lz4", topic_id=The("lz4")),
        fetch(0),
        fetch(0, topic="$-gzip", topic_id=The("gzip")),
        fetch(0, topic="$-lz4", topic_id=The("lz4")),
    ),
    scenario(
        "produce what is too large once it has its topic's codec",
        topic(compression_type="uncompressed", max_message_bytes="2000"),
        produce(batch(b"x" * 1932, compression=GZIP)),
        produce(batch(b"x" * 1933, compression=GZIP)),
        produce(batch(b"x" * 100_000, compression=ZSTD)),
        fetch(0),
    ),
    scenario(
        "produce damaged records",
        topic(compression_type="lz4"),
        topic("$-as-it-comes", save="as it comes"),
        *(produce(damaged(batch(TEXT, compression=codec))) for codec in (GZIP, SNAPPY, ZSTD)),
        fetch(0),
        produce(damaged(batch(TEXT, compression=GZIP)), topic="$-as-it-comes", topic_id=The("as it comes")),
        differs=("damaged compressed records",),
    ),
    scenario(
        "produce records that become very large to a topic that wants another codec",
        topic(compression_type="lz4"),
        produce(Made(batch_of, (Made(bytes, ((64 << 20) + 1,)),), {"compression": ZSTD})),
        differs=("records that become very large",),
    ),
    scenario(
        "fetch from a topic that wants zstd",
        topic(compression_type="zstd"),
        produce(batch(TEXT)),
        fetch(0),
        about="Fetch",
    ),
    scenario(
        "produce with codecs that do not exist",
        topic(),
        *(produce(lying(batch(), attributes=codec)) for codec in (5, 6, 7)),
        fetch(0),
        about=PRODUCE_VERSIONS,
        differs=("errors that nobody caught",),
    ),
    scenario(
        "produce control and transactional batches without a transaction",
        topic(),
        new_producer(),
        produce(batch(attributes=CONTROL)),
        produce(numbered(0, attributes=CONTROL)),
        produce(batch(attributes=TRANSACTIONAL)),
        fetch(0),
        about=PRODUCE_VERSIONS,
    ),
    scenario(
        "the offset that a client writes has to be 0",
        topic(),
        produce(batch(base_offset=77)),
        produce(batch(base_offset=-3)),
        fetch(0),
        about="Produce ends",
    ),
    scenario(
        "produce older and newer timestamps than allowed",
        topic(message_timestamp_before_max_ms=str(HOUR_MS), message_timestamp_after_max_ms=str(HOUR_MS)),
        produce(timed(NOW_MS)),
        produce(timed(NOW_MS - 2 * HOUR_MS)),
        produce(timed(NOW_MS + 2 * HOUR_MS)),
        produce(timed(NOW_MS, NOW_MS + 2 * HOUR_MS)),
        produce(timed(-1)),
        fetch(0),
        about="Produce 3 7",
    ),
    scenario(
        "which record has a bad timestamp",
        topic(message_timestamp_before_max_ms=str(HOUR_MS), message_timestamp_after_max_ms=str(HOUR_MS)),
        produce(timed(NOW_MS, NOW_MS + 2 * HOUR_MS)),
        about="Produce 8 13",
        differs=("records at fault",),
    ),
    scenario(
        "by default a timestamp may lie far in the past and an hour in the future",
        topic(retention_ms="-1"),
        produce(timed(0)),
        produce(timed(NOW_MS + HOUR_MS // 2)),
        produce(timed(NOW_MS + 2 * HOUR_MS)),
        produce(timed(-1)),
        *(fetch(offset, max_bytes=1) for offset in range(4)),
        about="Produce 3 7",
    ),
    scenario(
        "the broker gives the time",
        topic(message_timestamp_type="LogAppendTime"),
        produce(timed(5, 3, 9)),
        moment_later(3),
        produce(timed(-1)),
        moment_later(4),
        produce(timed(NOW_MS + 100 * HOUR_MS, compression=GZIP)),
        fetch(0),
        list_offsets(-3),
        about=PRODUCE_VERSIONS,
    ),
    scenario(
        "a client that sets the broker's timestamp type",
        topic(),
        produce(batch(attributes=LOG_APPEND_TIME)),
        about="Produce ends",
        differs=("a client's LogAppendTime",),
    ),
    scenario(
        "a producer's batches that come again",
        topic(partitions=2),
        new_producer(),
        *(produce(numbered(2 * number, b"a", b"b")) for number in range(7)),
        produce(numbered(12, b"a", b"b")),
        produce(numbered(4, b"a", b"b")),
        produce(numbered(2, b"a", b"b")),
        produce(numbered(0, b"a", b"b")),
        produce(numbered(12, b"a")),
        produce(numbered(0, b"c"), partition=1),
        fetch(0, 0),
        about="Produce 3 13",
        differs=("the append time of a duplicate", "a retry of an old batch"),
    ),
    scenario(
        "a producer's batches out of order",
        topic(),
        *forgotten_producer(),
        produce(numbered(5)),
        produce(numbered(7)),
        produce(numbered(6, b"a", b"b")),
        produce(numbered(7)),
        produce(numbered(8)),
        produce(numbered(10)),
        fetch(0),
        about="Produce 3 13",
    ),
    scenario(
        "a producer's epochs",
        topic(),
        new_producer(),
        produce(numbered(0, epoch=3)),
        produce(numbered(1, epoch=2)),
        produce(numbered(1, epoch=4)),
        produce(numbered(0, epoch=4)),
        produce(numbered(0, epoch=3)),
        produce(numbered(0, epoch=4)),
        fetch(0),
        about="Produce 3 13",
        differs=("the append time of a duplicate",),
    ),
    scenario(
        "sequence numbers wrap",
        topic(),
        *forgotten_producer(),
        produce(numbered(2**31 - 3, b"a", b"b")),
        produce(numbered(2**31 - 1, b"a", b"b", b"c")),
        produce(numbered(2)),
        produce(numbered(2**31 - 1, b"a", b"b", b"c")),
        fetch(0),
        differs=("the append time of a duplicate",),
    ),
    scenario(
        "producer ids and sequences that make no sense",
        topic(),
        new_producer(),
        produce(numbered(-1)),
        produce(numbered(-5)),
        produce(batch(producer_id=-1, producer_epoch=0, base_sequence=0)),
        produce(batch(producer_id=-2, producer_epoch=0, base_sequence=0)),
        produce(batch(producer_id=2**40, producer_epoch=0, base_sequence=0)),
        fetch(0),
    ),
    scenario(
        "a new producer that does not begin at sequence 0",
        topic(),
        # of the producers below this one much may be forgotten: other scenarios write with high ids, and delete topics
        produce(batch(producer_id=2**62, producer_epoch=0, base_sequence=3)),
        differs=("the first batch of a producer",),
    ),
    scenario(
        "a producer id without an epoch",
        topic(),
        new_producer(),
        produce(batch(producer_id=The("pid"), producer_epoch=-1, base_sequence=0)),
        about="Produce ends",
        differs=("a producer id without an epoch",),
    ),
)
