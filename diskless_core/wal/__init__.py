"""The WAL object's format, pure: the writer, the readers and tools use it."""
