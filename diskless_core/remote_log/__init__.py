"""What KIP-405 knows of segments in remote storage: types, states, lookups, records. Pure, and open to plugins."""
