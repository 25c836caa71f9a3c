"""Coordinator store in SQLite: one database file for each shard."""
