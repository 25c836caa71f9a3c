"""Keeps WAL objects as files of a folder."""
