"""Tries an installed, configured backend: whether it keeps its contract, and how quick it is. Leaves nothing behind."""
