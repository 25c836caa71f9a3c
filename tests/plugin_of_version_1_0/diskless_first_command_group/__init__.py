"""Tells operators where backends keep their data."""
