"""What another broker may ask of a Diskless coordinator: a request that makes no sense changes nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.peer_checks import (
    MAX_FILES,
    MAX_UNNAMED_PARTITIONS,
    PeerRules,
    problem_of_commit,
    problem_of_hand_over,
    problem_of_horizon,
    problem_of_keys,
    problem_of_partitions,
)
from diskless_core.diskless.tables import FILES
from diskless_core.files.hand_overs import PAGE_FILES as HANDED_OVER_AT_ONCE
from diskless_core.files.orphans import PAGE_FILES as ASKED_FOR_AT_ONCE
from diskless_core.protocol import messages
from diskless_core.protocol.commit_file import CommitFileRequest, OtherFile
from diskless_core.protocol.errors import ErrorCode
from tests.support.peer_network import Network
from tests.support.shards import TOPIC, batch, commit_of, row_of, wal_key
from tests.support.virtual_time import VirtualClock, run

RULES = PeerRules(object_prefix="wal", shards={0, 1, 2})
KEY = wal_key("object")
SOUND = commit_of(KEY, batch(), batch(producer=(7, 0, 2**31 - 1), count=3), owner_ids=(0, 2))
COMMIT = CommitFileRequest(
    object_key=KEY, object_format=1, file_size=SOUND.file_size, owner_ids=(0, 2), batches=SOUND.batches
)
OTHER = OtherFile(wal_key("other"), 1, SOUND.file_size, (0, 2), SOUND.batches)
HANDED_OVER = HandOver(KEY, (0, 2, 1), 1, 2)

FOREIGN_KEYS = {
    "a snapshot": "wal-snapshots/__cluster_metadata-0/00000000000000000042/manifest",
    "the log": "log/cluster_metadata-0/start",
    "another name below the prefix": "wal/notes.txt",
    "a prefix that only begins the same": wal_key("object").replace("wal/", "wal-b/"),
    "a way out of the prefix": wal_key("object").replace("wal/", "wal/../wal/"),
    "something behind the key": KEY + "/x",
    "nothing": "",
}
each_foreign_key = pytest.mark.parametrize("key", FOREIGN_KEYS.values(), ids=FOREIGN_KEYS)


def test_what_brokers_send_is_sound() -> None:
    assert problem_of_commit(COMMIT, RULES) is None
    assert problem_of_commit(replace(COMMIT, others=[OTHER]), RULES) is None
    assert problem_of_hand_over([HANDED_OVER] * HANDED_OVER_AT_ONCE, 2, RULES) is None
    assert problem_of_keys([KEY] * ASKED_FOR_AT_ONCE) is None
    assert problem_of_horizon(0) is None
    assert problem_of_partitions("t", 2, [5, 3]) is None
    assert problem_of_partitions("t" * 249, MAX_UNNAMED_PARTITIONS, []) is None


@each_foreign_key
def test_a_commit_names_a_wal_object_of_this_cluster(key: str) -> None:
    assert "is not the key of a WAL object" in str(problem_of_commit(replace(COMMIT, object_key=key), RULES))
    listed = replace(COMMIT, others=[OTHER, OTHER._replace(object_key=key)])
    assert "is not the key of a WAL object" in str(problem_of_commit(listed, RULES))


@each_foreign_key
def test_a_hand_over_names_wal_objects_of_this_cluster(key: str) -> None:
    files = [HANDED_OVER, HANDED_OVER._replace(object_key=key)]
    assert "is not the key of a WAL object" in str(problem_of_hand_over(files, 2, RULES))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"object_format": 2}, "object format 2"),
        ({"file_size": SOUND.file_size - 1}, "does not lie in an object"),
        ({"file_size": -1}, "does not lie in an object"),
        ({"owner_ids": (0, 2, 0)}, "each of them once"),
        ({"owner_ids": (0, -1)}, "each of them once"),
    ],
)
def test_a_commit_that_contradicts_itself_is_found_out(wrong: dict[str, Any], said: str) -> None:
    assert said in str(problem_of_commit(replace(COMMIT, **wrong), RULES))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"byte_offset": 15}, "at byte 15"),
        ({"byte_offset": -1}, "at byte -1"),
        ({"size": 60}, "a batch of 60 bytes"),
        ({"size": -1}, "a batch of -1 bytes"),
        ({"partition": -1}, "the partition -1"),
        ({"timestamp_type": 2}, "the timestamp type 2"),
        ({"producer_id": 7, "producer_epoch": -1, "base_sequence": 0, "last_sequence": 0}, "the epoch -1"),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": -1, "last_sequence": -1}, "numbers -1 to -1"),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": 5, "last_sequence": 6}, "numbers 5 to 6"),
    ],
)
def test_a_batch_that_cannot_be_is_found_out(wrong: dict[str, int], said: str) -> None:
    batches = [*SOUND.batches[:1], SOUND.batches[0]._replace(**wrong)]
    assert said in str(problem_of_commit(replace(COMMIT, batches=batches), RULES))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"owner_ids": (0, 1)}, "none of the owners"),
        ({"owner_ids": ()}, "none of the owners"),
        ({"owner_ids": (2, 2)}, "each of them once"),
        ({"owner_ids": (-1, 2)}, "each of them once"),
        ({"owner_ids": (2, 7)}, "no such coordinators"),
        ({"committed_at": -1}, "before 1970"),
        ({"dead_at": -1}, "before 1970"),
    ],
)
def test_a_hand_over_that_cannot_be_is_found_out(wrong: dict[str, Any], said: str) -> None:
    assert said in str(problem_of_hand_over([HANDED_OVER._replace(**wrong)], 2, RULES))


def test_no_request_names_more_objects_than_a_shard_reads_at_once() -> None:
    assert str(MAX_FILES) in str(problem_of_hand_over([HANDED_OVER] * (MAX_FILES + 1), 2, RULES))
    assert str(MAX_FILES) in str(problem_of_keys([KEY] * (MAX_FILES + 1)))


@pytest.mark.parametrize(
    ("name", "count", "indexes"),
    [("", 1, [0]), ("t" * 250, 1, [0]), ("t", 2, [0]), ("t", 1, [-1]), ("t", -1, []), ("t", 10_001, [])],
)
def test_partitions_that_cannot_be_are_found_out(name: str, count: int, indexes: list[int]) -> None:
    assert problem_of_partitions(name, count, indexes) is not None


def test_no_horizon_is_before_the_epoch() -> None:
    assert problem_of_horizon(-1) is not None


# --- the service ---------------------------------------------------------------------------------------------------

HAND_OVER = messages.DisklessHandOverFilesRequest


def hand_over_of(key: str) -> messages.DisklessHandOverFilesRequest:
    file = HAND_OVER.DisklessHandedOverFile(object_key=key, owner_ids=[0], committed_at=0, dead_at=0)
    return HAND_OVER(files=[file], shard=0)


async def commit_code(network: Network) -> int:
    request = replace(COMMIT, object_key="log/start", owner_ids=(0,))
    answer = await network.nodes[1].service.commit_file(request)
    assert all("diskless.wal.object.prefix" in str(one.message) for one in answer.results)
    return int({one.error for one in answer.results}.pop())


async def hand_over_code(network: Network) -> int:
    answer = await network.nodes[1].service.hand_over_files(hand_over_of("log/start"))
    assert "diskless.wal.object.prefix" in str(answer.error_message)
    return int(answer.error_code)


async def horizon_code(network: Network) -> int:
    answer = await network.nodes[1].service.raise_horizon(messages.DisklessRaiseHorizonRequest(horizon=-5, shard=0))
    return int(answer.error_code)


async def describe_code(network: Network) -> int:
    request_class = messages.DisklessDescribeFilesRequest
    files = [request_class.DisklessDescribeFileEntry(object_key="x")] * (MAX_FILES + 1)
    answer = await network.nodes[1].service.describe_files(request_class(files=files, shard=0))
    return int({file.error_code for file in answer.files}.pop())


async def create_code(network: Network) -> int:
    request_class = messages.DisklessCreatePartitionsRequest
    topic = request_class.DisklessCreatablePartitions(
        topic_id=uuid.UUID(bytes=TOPIC), name="", num_partitions=1, partition_indexes=[0]
    )
    [result] = (await network.nodes[1].service.create_partitions(request_class(topics=[topic], shard=0))).topics
    return int(result.error_code)


@pytest.mark.parametrize("code_of", [commit_code, hand_over_code, horizon_code, describe_code, create_code])
def test_a_request_that_makes_no_sense_is_refused_and_logged_once(
    code_of: Callable[[Network], Awaitable[int]],
) -> None:
    async def main() -> None:
        async with Network(VirtualClock(asyncio.get_running_loop()), {0: 1}, (1,)) as network:
            shard = network.nodes[1].shards[0]
            before = shard.next_offset
            with capture_logs() as logs:
                assert [await code_of(network) for _ in range(3)] == [ErrorCode.INVALID_REQUEST] * 3
            assert [line["log_level"] for line in logs] == ["warning"]
            assert shard.next_offset == before
            assert await row_of(shard, FILES, ("log/start",)) is None

    run(main)


def test_a_sender_that_may_not_ask_hears_only_that() -> None:
    async def main() -> None:
        async with Network(VirtualClock(asyncio.get_running_loop()), {0: 1}, (1,)) as network:
            answer = await network.nodes[1].service.refusing.hand_over_files(hand_over_of("log/start"))
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(main)
