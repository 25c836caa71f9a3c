"""What the cluster consists of: its id, topics, their settings, and blocks of producer ids; one shard's state."""
