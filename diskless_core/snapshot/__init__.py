"""Snapshots of coordinator shards in the object store: their form, and what can be read from them without a broker."""
