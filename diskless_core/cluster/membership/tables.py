"""The tables of brokers in the cluster shard, and what records do to them. All are resident. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration
from diskless_core.cluster.membership.records import (
    BrokerChanged,
    BrokerRecord,
    BrokerRegistered,
    BrokerUnregistered,
    NodeIdAllocated,
)
from diskless_core.coordinator.tables import Reader, Row, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.protocol.feature_levels import LevelRange

ONLY_ROW = (0,)

MAX_ALLOCATED_ID = 2**30 - 1
"""The highest node id that is ever given to a broker. Configured ones may be higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A node id that a broker has asked for; see `NodeIdAllocated`."""

    allocation_id: uuid.UUID
    allocated_at_ms: int


def _columns(registration: Registration) -> tuple[object, ...]:
    spec = registration.spec
    said = {"listeners": spec.listeners, "rack": spec.rack, "features": spec.features}
    return (
        registration.epoch,
        spec.incarnation_id.bytes,
        json.dumps(said, sort_keys=True),
        int(registration.is_fenced),
        int(registration.is_shutting_down),
        registration.fenced_at_ms,
    )


def _registration(row: Row) -> Registration:
    node_id, epoch, incarnation_id, text, is_fenced, is_shutting_down, fenced_at_ms = row
    said = json.loads(text)
    spec = BrokerSpec(
        node_id=node_id,
        incarnation_id=uuid.UUID(bytes=incarnation_id),
        listeners=tuple(BrokerListener(*one) for one in said["listeners"]),
        rack=said["rack"],
        features={name: LevelRange(*levels) for name, levels in said["features"].items()},
    )
    return Registration(
        spec=spec,
        epoch=epoch,
        is_fenced=bool(is_fenced),
        is_shutting_down=bool(is_shutting_down),
        fenced_at_ms=fenced_at_ms,
    )


BROKERS: Table[Registration] = Table(
    spec=TableSpec(
        name="brokers",
        key=(Column("node_id", ColumnType.INTEGER),),
        values=(
            Column("epoch", ColumnType.INTEGER),
            Column("incarnation_id", ColumnType.BLOB),
            Column("said", ColumnType.TEXT),
            Column("is_fenced", ColumnType.INTEGER),
            Column("is_shutting_down", ColumnType.INTEGER),
            Column("fenced_at_ms", ColumnType.INTEGER),
        ),
    ),
    encode=_columns,
    decode=_registration,
)
LAST_BROKER_EPOCH: Table[int] = Table(
    spec=TableSpec(
        name="last_broker_epoch",
        key=(Column("id", ColumnType.INTEGER),),
        values=(Column("epoch", ColumnType.INTEGER),),
    ),
    encode=lambda value: (value,),
    decode=lambda row: row[1],
)
NODE_IDS: Table[Allocation] = Table(
    spec=TableSpec(
        name="node_ids",
        key=(Column("node_id", ColumnType.INTEGER),),
        values=(Column("allocation_id", ColumnType.BLOB), Column("allocated_at_ms", ColumnType.INTEGER)),
    ),
    encode=lambda value: (value.allocation_id.bytes, value.allocated_at_ms),
    decode=lambda row: Allocation(allocation_id=uuid.UUID(bytes=row[1]), allocated_at_ms=row[2]),
)
"""Ids that the cluster has given to brokers that are not unregistered."""

NODE_ID_RUNS: Table[int] = Table(
    spec=TableSpec(
        name="node_id_runs",
        key=(Column("first", ColumnType.INTEGER),),
        values=(Column("last", ColumnType.INTEGER),),
    ),
    encode=lambda value: (value,),
    decode=lambda row: row[1],
)
"""All ids that the cluster has ever given to a broker, as runs of neighbours with both ends inclusive."""

CONFIGURED_ID_RUNS: Table[int] = Table(
    spec=replace(NODE_ID_RUNS.spec, name="configured_id_runs"), encode=NODE_ID_RUNS.encode, decode=NODE_ID_RUNS.decode
)
"""All other ids up to `MAX_ALLOCATED_ID` that brokers have ever had, in the same way."""

TABLES: tuple[Table[Any], ...] = (BROKERS, LAST_BROKER_EPOCH, NODE_IDS, NODE_ID_RUNS, CONFIGURED_ID_RUNS)


def replay(record: BrokerRecord, tx: Transaction) -> None:
    """Change the tables as the record says."""
    match record:
        case BrokerRegistered():
            registration = Registration(spec=record.spec, epoch=record.epoch, is_fenced=True, fenced_at_ms=record.at_ms)
            if record.spec.node_id <= MAX_ALLOCATED_ID and not is_in(NODE_ID_RUNS, record.spec.node_id, tx):
                _add(CONFIGURED_ID_RUNS, record.spec.node_id, tx)
            tx.put(BROKERS, (record.spec.node_id,), registration)
            tx.put(LAST_BROKER_EPOCH, ONLY_ROW, record.epoch)
        case BrokerChanged():
            _change(record, tx)
        case BrokerUnregistered():
            tx.delete(BROKERS, (record.node_id,))
            tx.delete(NODE_IDS, (record.node_id,))
        case NodeIdAllocated():
            allocation = Allocation(allocation_id=record.allocation_id, allocated_at_ms=record.allocated_at_ms)
            tx.put(NODE_IDS, (record.node_id,), allocation)
            _add(NODE_ID_RUNS, record.node_id, tx)


def _change(record: BrokerChanged, tx: Transaction) -> None:
    known = tx.get(BROKERS, (record.node_id,))
    if known is None or known.epoch != record.epoch:
        return
    changed = replace(
        known,
        is_fenced=known.is_fenced if record.is_fenced is None else record.is_fenced,
        is_shutting_down=known.is_shutting_down or record.shuts_down,
        fenced_at_ms=record.at_ms if record.is_fenced else known.fenced_at_ms,
    )
    tx.put(BROKERS, (record.node_id,), changed)


def runs(table: Table[int], state: Reader) -> Sequence[tuple[int, int]]:
    """The first and the last id of each run, in ascending order."""
    return [(first, state.get(table, (first,)) or first) for (first,) in sorted(state.keys(table, ()))]


def is_in(table: Table[int], node_id: int, state: Reader) -> bool:
    """Whether one of the runs has an id."""
    return any(first <= node_id <= last for first, last in runs(table, state))


def _add(table: Table[int], node_id: int, tx: Transaction) -> None:
    """Put an id into a run of its own, or into one that it is next to; two that it is between become one."""
    if is_in(table, node_id, tx):
        return
    last = tx.get(table, (node_id + 1,)) or node_id
    if last != node_id:
        tx.delete(table, (node_id + 1,))
    first = next((begins for begins, ends in runs(table, tx) if ends == node_id - 1), node_id)
    tx.put(table, (first,), last)
