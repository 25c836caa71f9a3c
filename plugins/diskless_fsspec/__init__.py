"""WAL objects and segments on whatever fsspec reaches: folders, S3, Google Cloud Storage, memory."""
