"""In-memory backends that pass the contract suites and fail when told to."""
