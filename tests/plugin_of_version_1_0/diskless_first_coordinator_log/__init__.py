"""Keeps the coordinator log in a file for each shard, for a single broker."""
