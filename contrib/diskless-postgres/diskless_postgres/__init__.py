"""`coordinator_log=postgres`: the coordinator log of Diskless brokers in PostgreSQL."""
