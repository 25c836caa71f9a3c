"""The broker: connections, dispatch, handlers, and the composition root that wires all other parts together."""
