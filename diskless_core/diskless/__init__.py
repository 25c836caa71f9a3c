"""Diskless partitions: one kind of coordinator shard (KIP-1164)."""
