"""The HTTP interface for operators: health, metrics, plugins, coordinators."""
