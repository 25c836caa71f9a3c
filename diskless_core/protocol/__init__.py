"""Kafka's wire format and Diskless's additions to it: messages, frames, record batches. Pure; knows no sibling."""
