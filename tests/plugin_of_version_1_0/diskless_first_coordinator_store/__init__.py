"""Keeps coordinator state as ordered pairs of keys and values."""
