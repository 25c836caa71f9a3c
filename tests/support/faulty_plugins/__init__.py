"""Plugins that keep some promises and break others, installed for one process by an entry point in a folder."""
