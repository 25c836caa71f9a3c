"""The coordinator log of a single node: Kafka-format segments on a local disk."""
