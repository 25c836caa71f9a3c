"""What runs in Spark's tasks: objects are looked at where they are listed, and only numbers go on.

A row of `FOUND` is an old object: its key as `keys.WalKeys` has it, and its size in bytes. A row without `created_ms`
is a count: `high` says of which `Kind`, `low` how many objects, `size` how many bytes. No snapshot has such a key, so
that counts go through the anti-join. Tasks are numbered: they get one row, their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import structlog

from diskless_core.clock import SystemClock
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Part
from diskless_core.snapshot.known_objects import known_objects_of_part
from diskless_spark.backends import started_objects
from diskless_spark.orphans import keys as wal_keys
from diskless_spark.orphans.inventory import Inventory, read_file
from diskless_spark.orphans.keys import Numbers
from diskless_spark.orphans.tally import DAY_MS, Amount, Kind, Tally

FOUND = "created_ms long, high long, low long, size long"
KEY = ("created_ms", "high", "low")
KNOWN = "created_ms long, high long, low long"
OUTCOME = "page binary, tally string"
"""A page of candidates, for `read_page`, or the tally of a task, for `tally.unpacked`."""

_FOUND = pa.schema([(name, pa.int64()) for name in (*KEY, "size")])
_OUTCOME = pa.schema([("page", pa.binary()), ("tally", pa.string())])

retrying = Retrying(Backoff(attempts=6, first_ms=500, max_ms=20_000, jitter=0.2), SystemClock())
"""For all requests of a search to the object store."""

T = TypeVar("T")
Batches = Iterator[pa.RecordBatch]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sieve:
    """What a task has to know of a search. `prefix` is that of all WAL objects, without the '/' at its end."""

    objects: Callable[[], WalObjectStore] = field(repr=False)
    prefix: str
    threshold_ms: int
    parallel_requests: int

    def sift(self, keys: pa.Array, sizes: Numbers, tally: Tally, key_prefix: str = "") -> pa.RecordBatch:
        """The old ones of some objects, whose keys have `key_prefix` before the store's. All are counted."""
        parsed = wal_keys.parse(keys, key_prefix + self.prefix)
        own = sizes[parsed.positions]
        is_old = parsed.created_ms < self.threshold_ms
        tally.count(Kind.OLD, _amount(own[is_old]))
        tally.count(Kind.YOUNG, _amount(own[~is_old]))
        tally.count(Kind.OTHER, Amount(len(sizes) - len(own), int(sizes.sum() - own.sum())))
        return _found(parsed.created_ms[is_old], parsed.high[is_old], parsed.low[is_old], own[is_old])


class ShardPart(NamedTuple):
    """A part of a shard's snapshot, and the tables that its manifest names."""

    tables: Mapping[str, Sequence[str]]
    part: Part


# --- what is there -----------------------------------------------------------------------------------------------


def list_prefixes(tasks: Batches, sieve: Sieve, prefixes: Sequence[Sequence[str]]) -> Batches:
    """List the objects of each task's prefixes."""
    for task in _numbers(tasks):
        yield from _run(_listed(sieve, prefixes[task]))


async def _listed(sieve: Sieve, prefixes: Sequence[str]) -> AsyncGenerator[pa.RecordBatch, None]:
    total = Tally()
    async with started_objects(sieve.objects, retrying) as store:
        for prefix in prefixes:
            batches, tally = await retrying.do(partial(_list, store, sieve, prefix))
            total.add(tally)
            for batch in batches:
                yield batch
    yield _counts(total)


async def _list(store: WalObjectStore, sieve: Sieve, prefix: str) -> tuple[list[pa.RecordBatch], Tally]:
    batches, tally = [], Tally()
    async for page in store.list(prefix):
        sizes = np.array([info.size_bytes for info in page], dtype=np.int64)
        batches.append(sieve.sift(pa.array([info.key for info in page], pa.string()), sizes, tally))
    return batches, tally


def read_inventory(
    tasks: Batches, sieve: Sieve, inventory: Inventory, key_prefix: str, options: Mapping[str, Any]
) -> Batches:
    """Read each task's file."""
    for task in _numbers(tasks):
        tally = Tally()
        for keys, sizes in read_file(inventory.files[task], inventory.columns, options):
            yield sieve.sift(keys, sizes.to_numpy(zero_copy_only=False), tally, key_prefix)
        yield _counts(tally)


# --- what is known -----------------------------------------------------------------------------------------------


def read_snapshots(tasks: Batches, sieve: Sieve, parts: Sequence[Sequence[ShardPart]], unread: Any) -> Batches:
    """The old objects in each task's parts. `unread` is Spark's accumulator for parts that cannot be read."""
    for task in _numbers(tasks):
        yield from _run(_known(sieve, parts[task], unread))


async def _known(sieve: Sieve, parts: Sequence[ShardPart], unread: Any) -> AsyncGenerator[pa.RecordBatch, None]:
    async with started_objects(sieve.objects, retrying) as store:
        for tables, part in parts:
            try:
                data = await retrying.do(partial(reading.read_part, store, part))
                keys = [key for page in known_objects_of_part(tables, part, data) for key in page]
            except reading.UNUSABLE as error:
                unread.add(1)
                _log.warning("a part of a snapshot is left out", key=part.key, error=str(error))
            else:
                found = sieve.sift(pa.array(keys, pa.string()), np.zeros(len(keys), dtype=np.int64), Tally())
                yield found.select(list(KEY))


# --- what comes of it --------------------------------------------------------------------------------------------


def to_outcome(rows: Batches, sieve: Sieve, *, verified: bool) -> Batches:
    """Pages of candidates, and the tally of all rows. `verified`: what is no longer in the store is left out."""
    tally = Tally()
    for batch in _run(_still_there(rows, sieve)) if verified else rows:
        created_ms, high, low, size = (np.asarray(column.fill_null(-1)) for column in batch.columns)
        is_count = np.asarray(batch.column("created_ms").is_null())
        for kind, *amount in zip(high[is_count].tolist(), low[is_count].tolist(), size[is_count].tolist(), strict=True):
            tally.count(Kind(kind), Amount(*amount))
        page = np.stack([created_ms, high, low])[:, ~is_count]
        for day in np.unique(page[0] // DAY_MS).tolist():
            tally.count_candidates(day, _amount(size[~is_count][page[0] // DAY_MS == day]))
        if page.size:
            tally.show(wal_keys.texts(sieve.prefix, *page))
            yield _outcome(page.tobytes(), None)
    yield _outcome(None, tally.packed())


async def _still_there(rows: Batches, sieve: Sieve) -> AsyncGenerator[pa.RecordBatch, None]:
    tally, slots = Tally(), asyncio.Semaphore(sieve.parallel_requests)

    async with started_objects(sieve.objects, retrying) as store:

        async def look(key: str) -> bool:
            async with slots:
                return await retrying.do(partial(_is_there, store, key))

        for batch in rows:
            is_count = np.asarray(batch.column("created_ms").is_null())
            yield batch.filter(pa.array(is_count))
            candidates = batch.filter(pa.array(~is_count))
            numbers = [np.asarray(candidates.column(name)) for name in KEY]
            there = np.array(await asyncio.gather(*map(look, wal_keys.texts(sieve.prefix, *numbers))), dtype=bool)
            tally.count(Kind.GONE, _amount(np.asarray(candidates.column("size"))[~there]))
            yield candidates.filter(pa.array(there))
    yield _counts(tally)


def read_page(prefix: str, page: bytes | bytearray) -> list[str]:
    """The keys of a page."""
    created_ms, high, low = np.frombuffer(page, dtype=np.int64).reshape(3, -1)
    return list(wal_keys.texts(prefix, created_ms, high, low))


# --- tools -------------------------------------------------------------------------------------------------------


async def _is_there(store: WalObjectStore, key: str) -> bool:
    try:
        await store.get(key, 0, 1)
    except ObjectNotFoundError:
        return False
    return True


def _run(pages: AsyncGenerator[T, None]) -> Iterator[T]:
    """What an asynchronous generator gives, on an event loop of its own."""

    async def following() -> T:
        return await anext(pages)

    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    page = runner.run(following())
                except StopAsyncIteration:
                    return
                yield page
        finally:
            runner.run(pages.aclose())


def _numbers(tasks: Batches) -> Iterator[int]:
    for batch in tasks:
        yield from batch.column(0).to_pylist()


def _amount(sizes: Numbers) -> Amount:
    return Amount(len(sizes), int(sizes.sum()))


def _found(*columns: Numbers | Sequence[int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=_FOUND)


def _counts(tally: Tally) -> pa.RecordBatch:
    amounts = tally.kinds.values()
    return _found(
        [None] * len(amounts),
        [int(kind) for kind in tally.kinds],
        [amount.objects for amount in amounts],
        [amount.size_bytes for amount in amounts],
    )


def _outcome(page: bytes | None, tally: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([page], pa.binary()), pa.array([tally], pa.string())], schema=_OUTCOME)
