"""Offsets of the positions in a log that librdkafka refuses to ask for, those of tiered storage. It blocks.

A ListOffsets request to each leader, by `raw_request`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from diskless_core.cli.raw_request import Address, ask
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ListOffsetsRequest, ListOffsetsResponse

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
"""Kafka's numbers for the first offset that is in the local log (KIP-405) and the last one in segments (KIP-1005)."""

_VERSIONS = {EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_NO_REPLICA = -1
_NO_EPOCH = -1


class PositionError(Exception):
    """A broker did not answer, or not with an offset."""


def offsets(topic: str, leaders: Mapping[int, Address], position: int, timeout_s: float) -> dict[int, int]:
    """The offset of a position in partitions of a topic, whose leaders are given by partition.

    Args:
        position: `EARLIEST_LOCAL` or `LATEST_TIERED`.
        timeout_s: how long each leader may take.

    Raises:
        PositionError: one does not answer, or refuses.
    """
    led = defaultdict(list)
    for partition, address in leaders.items():
        led[address].append(partition)
    found: dict[int, int] = {}
    for address, partitions in led.items():
        try:
            found |= _asked(address, topic, partitions, position, timeout_s)
        except (OSError, EOFError, ValueError) as error:
            raise PositionError(f"{address} gives no answer: {error}") from error
    return found


def _asked(address: Address, topic: str, partitions: list[int], position: int, timeout_s: float) -> dict[int, int]:
    answer = ask(address, _request(topic, partitions, position), _VERSIONS[position], timeout_s)
    return {one.partition_index: _offset(one) for found in answer.topics for one in found.partitions}


def _request(topic: str, partitions: list[int], position: int) -> ListOffsetsRequest:
    asked = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=_NO_REPLICA,
        isolation_level=0,
        topics=[
            asked(
                name=topic,
                partitions=[
                    asked.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=_NO_EPOCH, timestamp=position
                    )
                    for partition in partitions
                ],
            )
        ],
    )


def _offset(answer: ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse) -> int:
    if answer.error_code:
        raise PositionError(f"partition {answer.partition_index}: {ErrorCode(answer.error_code).name}")
    return answer.offset
