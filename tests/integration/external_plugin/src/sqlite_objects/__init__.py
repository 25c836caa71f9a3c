"""WAL objects in one SQLite file, and offsets that are always even."""
