"""The WAL object's format, without I/O: the writer, the readers and tools use it."""
