"""From a Fetch request to slices of cached objects: find runs, read objects, cut at batches, wait for more."""
