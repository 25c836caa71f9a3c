"""The tables of a log, and every statement about them.

`shards` has one row a shard: where its log starts and ends. An append is a compare-and-swap of that row, and inserts
its entries in the same statement. The row's lock orders the appends of all brokers.
"""

from __future__ import annotations

from psycopg import sql

FORMAT = 1
CHANNEL_PREFIX = "diskless_"

_CREATE = (
    (
        "CREATE TABLE IF NOT EXISTS {s}.log (one boolean PRIMARY KEY DEFAULT true CHECK (one), "
        "format integer NOT NULL, "
        "id uuid NOT NULL)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS {s}.shards (shard text PRIMARY KEY, start_offset bigint NOT NULL DEFAULT 0, "
        "end_offset bigint NOT NULL DEFAULT 0, last uuid NOT NULL, fence bigint NOT NULL DEFAULT 0, "
        "CHECK (0 <= start_offset AND start_offset <= end_offset)) "
        "WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS {s}.entries (shard text NOT NULL, entry_offset bigint NOT NULL, "
        "nonce uuid NOT NULL, "
        "previous uuid NOT NULL, checksum bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (shard, entry_offset)) "
        "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)"
    ),
    "ALTER TABLE {s}.entries ALTER COLUMN data SET STORAGE EXTERNAL",
    (
        "CREATE TABLE IF NOT EXISTS {s}.nominations (shard text PRIMARY KEY, node_id integer, "
        "generation bigint NOT NULL, "
        "beat bigint NOT NULL DEFAULT 0) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, "
        "autovacuum_vacuum_threshold = 1000)"
    ),
)


class Statements:
    """All statements, for the schema of one log."""

    def __init__(self, schema: str) -> None:
        def of(text: str) -> bytes:
            return sql.SQL(text).format(s=sql.Identifier(schema)).as_bytes(None)

        self.schema = schema
        self.channel = CHANNEL_PREFIX + schema
        self.create_schema = of("CREATE SCHEMA IF NOT EXISTS {s}")
        self.create = tuple(of(text) for text in _CREATE)
        self.create_log = of("INSERT INTO {s}.log (format, id) VALUES (%s, %s) ON CONFLICT DO NOTHING")
        self.log = of("SELECT format, id FROM {s}.log")
        self.create_shard = of("INSERT INTO {s}.shards (shard, last) VALUES (%s, %s) ON CONFLICT DO NOTHING")
        self.listen = sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)).as_bytes(None)
        self.append = of(
            "WITH moved AS (UPDATE {s}.shards SET end_offset = end_offset + %(count)s, last = %(nonce)s "
            "WHERE shard = %(shard)s AND end_offset = %(end)s AND last = %(last)s AND fence = %(fence)s RETURNING 1) "
            "INSERT INTO {s}.entries (shard, entry_offset, nonce, previous, checksum, data) "
            "SELECT %(shard)s, %(end)s + i - 1, %(nonce)s, CASE i WHEN 1 THEN %(last)s ELSE %(nonce)s END, c, d "
            "FROM moved, unnest(%(checksums)s::bigint[], %(data)b::bytea[]) WITH ORDINALITY AS u (c, d, i)"
        )
        self.fence = of("UPDATE {s}.shards SET fence = fence + 1 WHERE shard = %s RETURNING end_offset")
        self.heads = of(
            "SELECT k.shard, h.start_offset, h.end_offset, h.last, h.fence, e.nonce, h.shard IS NULL AND EXISTS "
            "(SELECT 1 FROM {s}.entries x WHERE x.shard = k.shard) FROM unnest(%s::text[], %s::bigint[]) "
            "AS k (shard, at) LEFT JOIN {s}.shards h ON h.shard = k.shard "
            "LEFT JOIN {s}.entries e ON e.shard = k.shard AND e.entry_offset = k.at"
        )
        self.nonce_at = of("SELECT nonce FROM {s}.entries WHERE shard = %s AND entry_offset = %s")
        self.page = of(
            "SELECT h.start_offset, h.end_offset, p.entry_offset, p.nonce, p.previous, p.checksum, p.data "
            "FROM {s}.shards h LEFT JOIN LATERAL (SELECT * FROM (SELECT r.*, sum(octet_length(r.data)) "
            "OVER (ORDER BY r.entry_offset) - octet_length(r.data) AS bytes_before FROM (SELECT * FROM {s}.entries "
            "WHERE shard = %(shard)s AND entry_offset >= %(offset)s ORDER BY entry_offset LIMIT %(rows)s) r) w "
            "WHERE bytes_before < %(bytes)s) p ON true WHERE h.shard = %(shard)s ORDER BY p.entry_offset"
        )
        self.move_start = of(
            "UPDATE {s}.shards SET start_offset = LEAST(%(before)s, end_offset - 1) WHERE shard = %(shard)s "
            "AND start_offset < LEAST(%(before)s, end_offset - 1) "
            "AND EXISTS (SELECT 1 FROM {s}.log WHERE id = %(log)s)"
        )
        self.first_entry = of("SELECT min(entry_offset) FROM {s}.entries WHERE shard = %s")
        self.delete = of(
            "DELETE FROM {s}.entries WHERE shard = %(shard)s AND entry_offset >= %(lowest)s "
            "AND entry_offset < LEAST(%(below)s, (SELECT start_offset FROM {s}.shards WHERE shard = %(shard)s)) "
            "AND EXISTS (SELECT 1 FROM {s}.log WHERE id = %(log)s)"
        )
        self.nomination = of("SELECT node_id, generation, beat FROM {s}.nominations WHERE shard = %s")
        self.nominate = of(
            "INSERT INTO {s}.nominations AS n (shard, node_id, generation) VALUES (%s, %s, 1) ON CONFLICT (shard) "
            "DO UPDATE SET node_id = EXCLUDED.node_id, generation = n.generation + 1, beat = 0 RETURNING generation"
        )
        self.beat = of("UPDATE {s}.nominations SET beat = beat + 1 WHERE shard = %s AND generation = %s")
        self.withdraw = of(
            "UPDATE {s}.nominations SET node_id = NULL, generation = generation + 1 "
            "WHERE shard = %s AND generation = %s"
        )


TRY_LOCK = "SELECT pg_try_advisory_lock(%s)"
UNLOCK = "SELECT pg_advisory_unlock(%s)"
TERMINATE_HOLDER = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND ((classid::bigint << 32) | objid::bigint) = %s AND pid <> pg_backend_pid()"
)
NOTIFY = "SELECT pg_notify(%s, %s)"
