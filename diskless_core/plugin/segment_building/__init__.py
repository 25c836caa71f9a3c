"""For authors of `segment_compaction`: reads batches of WAL objects, makes segments of them and copies these."""
