"""Keeps the metadata of segments in a file of the broker."""
