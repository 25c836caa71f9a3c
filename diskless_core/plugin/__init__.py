"""The author API: everything that a third-party plugin imports."""
