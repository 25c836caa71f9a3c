"""Coordinator store in RocksDB: one database for each shard."""
