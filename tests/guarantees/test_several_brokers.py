"""What holds through whichever broker clients go: two whole brokers on one log and one bucket."""

from __future__ import annotations

from pathlib import Path

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, read_records
from tests.support.cluster import Cluster, in_thread
from tests.support.guarantees import guarantee
from tests.support.requests import create_topic, fetch, list_offset, new_producer_id, produce, produce_request

TOPIC = "t"
LATEST = -1
LED_BY_THE_SECOND = {0: 2}
ROUNDS = 30


@guarantee(
    "Idempotence", "A retry through another broker gets its original offset too, also while the first is under way."
)
async def test_a_retry_over_the_wire_through_another_broker_is_recognised(tmp_path: Path) -> None:
    def clients(cluster: Cluster) -> None:
        with cluster.connect(1) as one, cluster.connect(2) as two:
            create_topic(one, TOPIC)
            producer_id = new_producer_id(one)
            batches = [
                batch_of(b"%d" % n, producer_id=producer_id, producer_epoch=0, base_sequence=n) for n in range(9)
            ]
            for number, batch in enumerate(batches):
                first, again = (one, two) if number % 2 else (two, one)
                assert produce(first, TOPIC, batch).base_offset == number
                assert produce(again, TOPIC, batch).base_offset == number
            assert produce(one, TOPIC, batches[0]).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            last = batch_of(b"last", producer_id=producer_id, producer_epoch=0, base_sequence=len(batches))
            for wire in (one, two):
                wire.send(produce_request(TOPIC, {0: last}), 9)
            answers = [wire.receive().responses[0].partition_responses[0] for wire in (one, two)]
            assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, len(batches))] * 2
            assert list_offset(two, TOPIC, LATEST).offset == len(batches) + 1

    async with Cluster(tmp_path, LED_BY_THE_SECOND) as cluster:
        await in_thread(lambda: clients(cluster))


@guarantee("Offsets", "Brokers that write to one partition at once get offsets without gap or overlap, in order.")
async def test_two_brokers_at_once_get_offsets_without_gap_or_overlap(tmp_path: Path) -> None:
    def clients(cluster: Cluster) -> None:
        with cluster.connect(1) as one, cluster.connect(2) as two:
            create_topic(one, TOPIC)
            for number in range(ROUNDS):
                for wire in (one, two):
                    wire.send(produce_request(TOPIC, {0: batch_of(*[b"%d" % number] * (1 + number % 3))}), 9)
            offsets = [
                [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(ROUNDS)]
                for wire in (one, two)
            ]
            written = dict[int, int]()
            for of_one_broker in offsets:
                assert of_one_broker == sorted(of_one_broker)
                written |= {offset: 1 + number % 3 for number, offset in enumerate(of_one_broker)}
            end = 0
            for offset, count in sorted(written.items()):
                assert offset == end
                end += count
            assert end == 2 * sum(1 + number % 3 for number in range(ROUNDS))
            for wire in (one, two):
                assert list_offset(wire, TOPIC, LATEST).offset == end
            assert [record.offset for record in read_records(fetch(two, TOPIC, 0).records)] == list(range(end))

    async with Cluster(tmp_path, LED_BY_THE_SECOND) as cluster:
        await in_thread(lambda: clients(cluster))
