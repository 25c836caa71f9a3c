"""Diskless: a Kafka-compatible broker whose data lives in object storage."""
