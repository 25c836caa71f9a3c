"""What a broker answered, in a form in which two brokers can be compared: symbols stand for what has to differ."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.record import MemoryRecords

from tests.support.batches import NOW_MS

_KINDS = {
    "topic_id": "topic id",
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer id",
    "cluster_id": "cluster",
    "port": "port",
    "session_id": "session",
    "member_epoch": "epoch",
    "group_epoch": "epoch",
    "assignment_epoch": "epoch",
}
"""Fields whose values each broker draws by itself. Equal values of one transcript get the same symbol."""

_WORDING = {"error_message", "documentation"}
"""Fields for readers, which are left out."""

_TIMES = {"timestamp", "log_append_time_ms", "max_timestamp", "first_timestamp", "last_timestamp"}
_SORTED_BY = (
    "name", "topic", "topic_name", "resource_name", "topic_id", "partition_index", "partition", "index", "group_id",
    "member_id", "group_instance_id", "api_key", "producer_id",
)  # fmt: skip
_ORDERED = {"synonyms"}
"""Lists whose order means something. All others are sorted."""

_NOTHING = (None, "", 0, -1, uuid.UUID(int=0))
_APPENDED_SINCE_MS, _APPENDED_BEFORE_MS = NOW_MS + 59_000, NOW_MS + 3_600_000


class Difference(NamedTuple):
    """One place where the answers are not the same."""

    path: str
    kafka: Any
    diskless: Any

    def __str__(self) -> str:
        return f"{self.path}: Kafka {self.kafka!r}, Diskless {self.diskless!r}"


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
"""In a difference: the other broker's answer has here what this one lacks."""


class Symbols:
    """The symbols of one transcript."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._known: dict[tuple[str, Any], str] = {}

    def plain(self, answer: Any, *, only_own: bool = False) -> Any:
        """A message of kafka-python as plain data with symbols; on demand without topics and groups of others."""
        found = answer.to_dict(json=False)
        if only_own:
            found = {key: self._own(value) for key, value in found.items()}
        return self._plain("", found)

    def _own(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [item for item in value if not isinstance(item, dict) or self._name_of(item).startswith(self._prefix)]

    def _name_of(self, item: Mapping[str, Any]) -> str:
        names = (item[key] for key in ("name", "topic", "group_id", "resource_name") if key in item)
        return next(names, None) or self._prefix

    def _plain(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._plain(key, item) for key, item in value.items() if key not in _WORDING}
        if isinstance(value, list):
            return self._list(name, value)
        if name == "records":
            return [self._batch(batch) for batch in batches_of(value)]
        if value in _NOTHING:
            return None if isinstance(value, uuid.UUID) else value
        if name in _KINDS and not (name == "leader" and isinstance(value, int)):
            return self._symbol(_KINDS[name], value)
        if name in _TIMES and _APPENDED_SINCE_MS <= value < _APPENDED_BEFORE_MS:
            return "<time of the append>"
        return value

    def _list(self, name: str, values: list[Any]) -> list[Any]:
        plain = [self._plain(name, value) for value in values]
        if not plain or not isinstance(plain[0], dict) or name in _ORDERED:
            return plain
        return sorted(plain, key=lambda item: [_sort_key(item.get(key)) for key in _SORTED_BY])

    def _symbol(self, kind: str, value: Any) -> str:
        taken = sum(1 for known, _ in self._known if known == kind)
        return self._known.setdefault((kind, value), f"<{kind} {taken + 1}>")

    def _batch(self, batch: Any) -> dict[str, Any]:
        is_valid = batch.validate_crc()
        shown = {
            "base_offset": batch.base_offset,
            "leader_epoch": batch.leader_epoch,
            "attributes": batch.attributes,
            "last_offset": batch.last_offset,
            "first_timestamp": batch.first_timestamp,
            "max_timestamp": batch.max_timestamp,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
        }
        return {key: self._plain(key, value) for key, value in shown.items()} | {
            "records": [self._record(record) for record in batch] if is_valid else "damaged",
        }

    def _record(self, record: Any) -> dict[str, Any]:
        shown = {"offset": record.offset, "timestamp": record.timestamp, "key": record.key, "value": record.value}
        return {key: self._plain(key, value) for key, value in shown.items()}


def _by_name(configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {f"<{config['name']}>": config for config in configs}


def _sort_key(value: Any) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, repr(value))


def batches_of(data: Any) -> list[Any]:
    """The complete record batches in a field of an answer."""
    memory = MemoryRecords(bytes(data or b""))
    batches = []
    while memory.has_next():
        batches.append(memory.next_batch())
    return batches


def part(answer: Any, path: str) -> Any:
    """A part of an answer by its path: names and indexes with dots between them."""
    for step in path.split("."):
        answer = answer[int(step)] if isinstance(answer, Sequence) else getattr(answer, step)
    return answer


def differences(kafka: Any, diskless: Any, path: str = "") -> Iterator[Difference]:
    """Where two answers of plain data differ, as deep as can be."""
    if isinstance(kafka, dict) and isinstance(diskless, dict):
        for key in kafka | diskless:
            yield from differences(kafka.get(key, ABSENT), diskless.get(key, ABSENT), f"{path}.{key}".lstrip("."))
    elif isinstance(kafka, list) and isinstance(diskless, list):
        if path.endswith("configs"):
            yield from differences(_by_name(kafka), _by_name(diskless), path)
            return
        for index in range(max(len(kafka), len(diskless))):
            left = kafka[index] if index < len(kafka) else ABSENT
            right = diskless[index] if index < len(diskless) else ABSENT
            yield from differences(left, right, f"{path}.{index}".lstrip("."))
    elif kafka != diskless:
        yield Difference(path, kafka, diskless)
