"""Lists the object store, with pauses, and names what is old enough."""
