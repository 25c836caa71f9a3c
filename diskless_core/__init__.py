"""Diskless: a leaderless, Kafka-compatible broker whose data lives in object storage."""
