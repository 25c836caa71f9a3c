"""Apache Kafka's own command line tools, unchanged, and their output without what differs by nature."""

from __future__ import annotations

import re
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.apache_kafka import java

TIMEOUT_S = 300.0
_TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
# These count in static fields, or run until they are stopped.
_IN_A_PROCESS_OF_ITS_OWN = {
    "kafka-console-consumer",
    "kafka-consumer-perf-test",
    "kafka-producer-perf-test",
    "kafka-verifiable-consumer",
    "kafka-verifiable-producer",
}
_OPTIONS_BEFORE_SUBCOMMAND = {"kafka-features", "kafka-metadata-quorum"}
_RUNNER = Path(__file__).parent / "java/ToolRunner.java"
_INT = struct.Struct(">i")
_NOISE = re.compile(
    r"^\tat |^\s*$|^The consumer rebalance protocol \(KIP-848\)|^java\.util\.concurrent\.Exec", re.MULTILINE
)
_TOPIC_ID = re.compile(r"(?<=TopicId: )[\w-]{22}(?=\t)")
_TIME_AND_THREAD = re.compile(r"^\d+ \[.*?\] |(?<=adminclient-)\d+")
# The controller of a new cluster with eligible leader replicas sets it for all topics.
_CONTROLLERS_DEFAULT = re.compile(r"(?:  )?min\.insync\.replicas=1(?: sensitive.*|,?)")


class Finished(NamedTuple):
    """What a tool wrote, and the code that it ended with."""

    out: str
    err: str
    code: int


class ToolRunner:
    """A JVM that runs the main methods of tools one after the other, each as if in a process of its own."""

    def __init__(self, jars: Path) -> None:
        self._process = subprocess.Popen(java(jars, str(_RUNNER)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, main: str, arguments: Sequence[str], stdin: str) -> Finished:
        assert self._process.stdin is not None
        parts = [part.encode() for part in (stdin, main, *arguments)]
        self._process.stdin.write(_INT.pack(len(parts)) + b"".join(_INT.pack(len(part)) + part for part in parts))
        self._process.stdin.flush()
        # A tool that hangs is ended with its JVM; the pipe's end then ends the read.
        watchdog = threading.Timer(TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            code = self._int()
            out, err = (self._read(self._int()).decode() for _ in range(2))
        finally:
            watchdog.cancel()
        return Finished(out, err, code)

    def end(self) -> None:
        """Make sure that no process is left."""
        self._process.kill()
        self._process.communicate()

    def _int(self) -> int:
        value: int = _INT.unpack(self._read(_INT.size))[0]
        return value

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        assert len(data) == size, "the JVM of the tools ended, or a tool took too long"
        return data


class KafkaTools:
    """The tools on one cluster. A subcommand goes before the cluster's address, options after it."""

    def __init__(self, jars: Path, runner: ToolRunner, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._jars = jars
        self._runner = runner

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Finished:
        """Run it to its end."""
        if tool not in _IN_A_PROCESS_OF_ITS_OWN:
            return self._runner.run(MAIN_CLASSES[tool], self._arguments(tool, arguments), stdin)
        done = subprocess.run(
            self._command(tool, arguments), input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        return Finished(done.stdout, done.stderr, done.returncode)

    def out(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """What it wrote; it has to succeed."""
        done = self.run(tool, *arguments, stdin=stdin)
        assert done.code == 0, done.out + done.err
        return done.out

    @contextmanager
    def running(self, tool: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run it meanwhile, in a process of its own; in the end it is asked to stop, and has to."""
        with subprocess.Popen(
            self._command(tool, arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
                process.terminate()
                process.wait(TIMEOUT_S)
            finally:
                process.kill()

    def _command(self, tool: str, arguments: Sequence[str]) -> list[str]:
        return java(self._jars, MAIN_CLASSES[tool], *self._arguments(tool, arguments))

    def _arguments(self, tool: str, arguments: Sequence[str]) -> list[str]:
        subcommand = (
            []
            if tool in _OPTIONS_BEFORE_SUBCOMMAND or not arguments or arguments[0].startswith("-")
            else [arguments[0]]
        )
        return [*subcommand, "--bootstrap-server", self.bootstrap, *arguments[len(subcommand) :]]

    def normalized(self, finished: Finished) -> tuple[list[str], int]:
        """The code, and the lines in order of their text, without what two clusters or two runs never share."""
        text = finished.out + "\n" + finished.err
        host, _, port = self.bootstrap.rpartition(":")
        text = _TOPIC_ID.sub("<id>", text).replace(self.bootstrap, "<bootstrap>")
        text = re.sub(rf"{re.escape(host)} +{port}\b", "<bootstrap>", text)
        text = _CONTROLLERS_DEFAULT.sub("", text)
        lines = [_TIME_AND_THREAD.sub("", line) for line in text.splitlines()]
        return sorted(line.rstrip() for line in lines if not _NOISE.search(line)), finished.code


class Both:
    """The same command on Diskless and on Apache Kafka."""

    def __init__(self, diskless: KafkaTools, kafka: KafkaTools) -> None:
        self.diskless = diskless
        self.kafka = kafka

    def run(self, tool: str, *arguments: str, stdin: str = "") -> tuple[Finished, Finished]:
        """What it wrote on Diskless, and on Kafka."""
        return self.diskless.run(tool, *arguments, stdin=stdin), self.kafka.run(tool, *arguments, stdin=stdin)

    def same(self, tool: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run it and check that it says the same on both; what it wrote on Diskless."""
        ours, theirs = self.run(tool, *arguments, stdin=stdin)
        assert self.diskless.normalized(ours) == self.kafka.normalized(theirs), f"{ours}\n{theirs}"
        assert ours.code == code, ours.out + ours.err
        return ours.out + ours.err
