"""Starts every batch at a multiple of a configured number."""
