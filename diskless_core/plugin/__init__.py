"""The author API: what a third-party plugin imports, and nothing of how a broker finds, loads and calls it."""
