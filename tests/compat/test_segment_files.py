"""Apache Kafka builds the same files for a segment's batches as we do, and its tools read ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.apache_kafka import classpath, java
from tests.support.segments import Segment, random_segment, write_all, write_log

RECOVER = Path(__file__).parents[1] / "kafka" / "RecoverSegment.java"
SEEDS = range(12)
TIMEOUT_S = 300
DUMPED = {".log", ".index", ".timeindex"}


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def segments(tmp_path_factory) -> dict[Path, Segment]:
    folder = tmp_path_factory.mktemp("segments")
    made = {folder / str(seed): random_segment(seed) for seed in SEEDS}
    for path, segment in made.items():
        write_all(segment, path)
    return made


def test_kafka_recovers_the_same_indexes_and_producers_from_the_log(kafka_jars, segments, tmp_path):
    arguments = []
    for ours, segment in segments.items():
        write_log(segment, tmp_path / ours.name)
        arguments += [str(tmp_path / ours.name), str(segment.base_offset), str(segment.interval_bytes)]
    run(["java", "-cp", classpath(kafka_jars), str(RECOVER), *arguments])
    for ours in segments:
        theirs = tmp_path / ours.name
        assert {path.name: path.read_bytes() for path in ours.iterdir()} == {
            path.name: path.read_bytes() for path in theirs.iterdir()
        }


def test_kafka_dump_log_finds_nothing_wrong(kafka_jars, segments):
    files = [
        path for folder in segments for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex")
    ]
    for options in (["--deep-iteration"], ["--index-sanity-check"], ["--verify-index-only"]):
        report = run(
            java(kafka_jars, "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))
        )
        assert "Mismatches in" not in report
        assert "isvalid: false" not in report
        assert report.count("Dumping") == len(files)


def test_kafka_dump_log_reads_producer_snapshots(kafka_jars, segments):
    files = sorted(path for folder in segments for path in folder.glob("*.snapshot"))
    report = run(java(kafka_jars, "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files))))
    for segment in segments.values():
        for entry in segment.indexer.producers.values():
            assert f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} " in report
            assert f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} " in report
