"""Kafka's wire format and Diskless's additions to it: messages, frames, record batches. No I/O, no sibling package."""
