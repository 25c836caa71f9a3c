"""How a store's databases are opened: RocksDB's options, and what all databases of a store share."""

from __future__ import annotations

import re
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteOptions,
)

from diskless_rocksdb.config import MIB, RocksdbSettings
from diskless_rocksdb.errors import DamagedError, translated
from diskless_rocksdb.write_buffers import WriteBuffers

BLOCK_BYTES = 8 * 1024
METADATA_BLOCK_BYTES = 8 * 1024
BLOOM_BITS = 10
TABLE_BYTES = 32 * MIB
MAX_BUFFERS = 3
"""Buffers of one database: the one that is filled, and those that are being flushed. RocksDB takes no more writes when
all of them wait."""

SLOWDOWN_TABLES = 48
STOP_TABLES = 64
"""Tables of level 0, that is, not merged yet, at which RocksDB brakes writes, and at which it takes none."""

DELETED_WINDOW = 8192
DELETED_TRIGGER = 4096
"""A table in which so many of so many rows in succession are deletions is merged soon, lest scans wade through them."""

_DATA_FILE = re.compile(r"\d+\.(?:sst|log)")


class Engine:
    """Opens databases that share a cache and the memory for writes."""

    def __init__(self, settings: RocksdbSettings) -> None:
        self.buffers = WriteBuffers(settings.write_buffer_bytes)
        self.write_timeout_s = settings.write_timeout_ms / 1000
        self._settings = settings
        self._cache = Cache(settings.cache_bytes)

    def open(self, folder: Path) -> Rdict:
        """Open a database, or make one where there is none.

        Raises:
            CoordinatorStoreError: it is damaged, in use, or the folder cannot be used.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_remains(folder)
            options = self._options()
            # Named, or rocksdict takes the options that the database was opened with before.
            return Rdict(str(folder), options, {"default": options}, AccessType.read_write())
        except OSError as error:
            raise translated(error, folder, "open") from error
        except Exception as error:  # rocksdict has no other class for what RocksDB says
            if isinstance(error, DamagedError):
                raise
            raise translated(error, folder, "open") from error

    def _options(self) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_paranoid_checks(True)
        # What is behind the first record that is not whole is left out: rows and offset are those of one write.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        options.set_block_based_table_factory(self._tables())
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(self.buffers.bytes_of_one)
        options.set_arena_block_size(min(MIB, max(self.buffers.bytes_of_one // 8, 4096)))
        options.set_max_write_buffer_number(MAX_BUFFERS)
        options.set_target_file_size_base(TABLE_BYTES)
        options.set_level_zero_slowdown_writes_trigger(SLOWDOWN_TABLES)
        options.set_level_zero_stop_writes_trigger(STOP_TABLES)
        options.add_compact_on_deletion_collector_factory(DELETED_WINDOW, DELETED_TRIGGER, 0.0)
        options.set_max_open_files(self._settings.max_open_files)
        options.set_max_background_jobs(self._settings.background_jobs)
        # Written out steadily: writes to the log must not wait behind a flood of a table's pages.
        options.set_bytes_per_sync(MIB)
        # What RocksDB notes for people to read stays small.
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(MIB)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options

    def _tables(self) -> BlockBasedOptions:
        tables = BlockBasedOptions()
        tables.set_block_cache(self._cache)
        tables.set_block_size(BLOCK_BYTES)
        tables.set_bloom_filter(BLOOM_BITS, False)
        # Indexes and filters outside the cache would grow with the rows. In it they are in parts: the cache is split
        # into many pieces, and none has room for the whole index of a table.
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_index_type(BlockBasedIndexType.two_level_index_search())
        tables.set_partition_filters(True)
        tables.set_metadata_block_size(METADATA_BLOCK_BYTES)
        tables.set_pin_top_level_index_and_filter(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_format_version(5)
        return tables


def write_options() -> WriteOptions:
    """The options of every write.

    RocksDB's log is written, without waiting for the disk: what returned survives a killed process. A write that would
    have to wait inside RocksDB fails instead: rocksdict holds the interpreter's lock meanwhile.
    """
    options = WriteOptions()
    options.no_slowdown = True
    options.memtable_insert_hint_per_batch = True
    return options


def _refuse_remains(folder: Path) -> None:
    """RocksDB takes a folder without the file CURRENT for a new one. It makes that file before any with rows.

    Raises:
        DamagedError: there are files with rows, and not that one.
    """
    if not (folder / "CURRENT").exists():
        left = sorted(path.name for path in folder.iterdir() if _DATA_FILE.fullmatch(path.name))
        if left:
            raise DamagedError(folder, f"CURRENT is missing, but there is {left[0]}")
