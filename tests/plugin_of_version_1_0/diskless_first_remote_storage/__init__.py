"""Keeps segments as folders of files."""
