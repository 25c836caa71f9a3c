"""The tables of brokers in the cluster shard, and what records do to them. Both are resident. Pure."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration, SupportedLevels
from diskless_core.cluster.membership.records import (
    BrokerChanged,
    BrokerRecord,
    BrokerRegistered,
    BrokerUnregistered,
)
from diskless_core.coordinator.tables import Row, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec

ONLY_ROW = (0,)


def _columns(registration: Registration) -> tuple[object, ...]:
    spec = registration.spec
    said = {"listeners": spec.listeners, "rack": spec.rack, "features": spec.features}
    return (
        registration.epoch,
        spec.incarnation_id.bytes,
        json.dumps(said, sort_keys=True),
        int(registration.is_fenced),
        int(registration.is_shutting_down),
    )


def _registration(row: Row) -> Registration:
    node_id, epoch, incarnation_id, text, is_fenced, is_shutting_down = row
    said = json.loads(text)
    spec = BrokerSpec(
        node_id=node_id,
        incarnation_id=uuid.UUID(bytes=incarnation_id),
        listeners=tuple(BrokerListener(*one) for one in said["listeners"]),
        rack=said["rack"],
        features={name: SupportedLevels(*levels) for name, levels in said["features"].items()},
    )
    return Registration(spec=spec, epoch=epoch, is_fenced=bool(is_fenced), is_shutting_down=bool(is_shutting_down))


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


def replay(record: BrokerRecord, tx: Transaction) -> None:
    """Change the tables as the record says."""
    match record:
        case BrokerRegistered():
            registration = Registration(spec=record.spec, epoch=record.epoch, is_fenced=True)
            tx.put(BROKERS, (record.spec.node_id,), registration)
            tx.put(LAST_BROKER_EPOCH, ONLY_ROW, record.epoch)
        case BrokerChanged():
            _change(record, tx)
        case BrokerUnregistered():
            tx.delete(BROKERS, (record.node_id,))


def _change(record: BrokerChanged, tx: Transaction) -> None:
    known = tx.get(BROKERS, (record.node_id,))
    if known is None or known.epoch != record.epoch:
        return
    changed = replace(
        known,
        is_fenced=known.is_fenced if record.is_fenced is None else record.is_fenced,
        is_shutting_down=known.is_shutting_down or record.shuts_down,
    )
    tx.put(BROKERS, (record.node_id,), changed)
