"""Segments that come from Apache Kafka, or go there. Commands use it; a broker does not, except to adopt the result.

- `kafka_import`, `kafka_export`: what to do next, and what each segment becomes on the other side. Pure.
- `coverage`: which segments hold a range of offsets without a gap. Pure.
- `segment_copy`: copies a segment from one remote storage to another, and checks every batch.

A broker takes imported segments over in `segment_admin`, one folder up.
"""
