"""The coordinator log of a cluster that has nothing but an object store: one object an append, created once."""
