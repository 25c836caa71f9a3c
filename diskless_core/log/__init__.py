"""Kafka's own file formats, as pure functions over names and bytes: no event loop, no I/O of their own."""
