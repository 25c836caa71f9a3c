"""Load on a broker that is killed again and again: who remembers every acknowledgement, and how all is compared."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PARTITIONS = 4
_QUEUE_MESSAGES = 200
_PADDING = b"." * 300

CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}

_KILL_AT = """#!{python}
import importlib, itertools, os, signal, sys

def die_at(path, name, call, after):
    module_name, _, attribute = path.partition(":")
    owner = importlib.import_module(module_name)
    *parents, last = attribute.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original, calls = getattr(owner, last), itertools.count(1)

    def now():
        return next(calls) == call

    def dies(*args, **kwargs):
        hit = now()
        if hit and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    async def dies_async(*args, **kwargs):
        hit = now()
        if hit and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await original(*args, **kwargs)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, last, dies_async if name == "async" else dies)

die_at({path!r}, {kind!r}, {call}, {after})
from diskless_core.cli.main import main
sys.exit(main())
"""


class CrashPoint(NamedTuple):
    """A function of the broker that kills its process, before or after its work, at the `call`th call."""

    path: str
    call: int
    after: bool = False
    is_async: bool = False

    def write_command(self, path: Path) -> Path:
        """A stand-in for the `diskless` command."""
        kind = "async" if self.is_async else "sync"
        path.write_text(
            _KILL_AT.format(python=sys.executable, path=self.path, kind=kind, call=self.call, after=self.after)
        )
        path.chmod(0o755)
        return path


class Acknowledged(NamedTuple):
    """What the broker said about a message."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class SteadyProducer:
    """Produces to all partitions of a topic, in a thread of its own, until it is stopped; forgets nothing."""

    def __init__(self, bootstrap: str, topic: str, name: str, *, idempotent: bool) -> None:
        self.name = name
        self.idempotent = idempotent
        self.acknowledged: list[Acknowledged] = []
        self.failed: list[KafkaError] = []
        self.sent = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 10,
                "request.timeout.ms": 5_000,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "error_cb": lambda error: None,
                **CLIENT,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> SteadyProducer:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop producing and wait until everything that was sent has an answer."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} messages of {self.name} never got an answer"

    def _run(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) < _QUEUE_MESSAGES:
                self._send()
            self._producer.poll(0.001)

    def _send(self) -> None:
        number = self.sent
        key, value = f"{self.name}-{number}".encode(), b"%d%s" % (number, _PADDING)
        partition = number % PARTITIONS
        self._producer.produce(self._topic, value, key, partition=partition, on_delivery=self._answered)
        self.sent += 1

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        self.acknowledged.append(Acknowledged(message.partition(), message.offset(), message.key(), message.value()))


def wait_for_acknowledgements(producers: list[SteadyProducer], count: int, timeout_s: float = 30.0) -> None:
    """Wait until each of them got so many more."""
    wanted = {producer.name: len(producer.acknowledged) + count for producer in producers}
    deadline = time.monotonic() + timeout_s
    while any(len(producer.acknowledged) < wanted[producer.name] for producer in producers):
        assert time.monotonic() < deadline, "the producers get no acknowledgements any more"
        threading.Event().wait(0.005)


def read_everything(bootstrap: str, topic: str) -> dict[int, list[Message]]:
    """All messages of each partition, from its beginning to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "check.crcs": True, **CLIENT})
    try:
        ends = {}
        for partition in range(PARTITIONS):
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=300)
            assert start == 0
            ends[partition] = end
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        read: dict[int, list[Message]] = defaultdict(list)
        deadline = time.monotonic() + 30
        while any(len(read[partition]) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, {
                partition: (len(read[partition]), ends[partition]) for partition in ends
            }
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None, message.error()
                read[message.partition()].append(message)
        return read
    finally:
        consumer.close()


def assert_nothing_is_lost(bootstrap: str, topic: str, producers: list[SteadyProducer]) -> None:
    """Every acknowledged message is at its offset; an idempotent producer's are there once, in order."""
    read = read_everything(bootstrap, topic)
    for partition, messages in read.items():
        assert [message.offset() for message in messages] == list(range(len(messages))), partition
    for producer in producers:
        for partition, offset, key, value in producer.acknowledged:
            found = read[partition][offset]
            assert (found.key(), found.value()) == (key, value), f"{key!r} is not at {partition}/{offset}"
        if producer.idempotent:
            assert not producer.failed, producer.failed[:3]
            assert len(producer.acknowledged) == producer.sent
            _assert_once_and_in_order(producer, read)


def _assert_once_and_in_order(producer: SteadyProducer, read: dict[int, list[Message]]) -> None:
    prefix = f"{producer.name}-".encode()
    for partition, messages in read.items():
        keys = [message.key() for message in messages]
        numbers = [int(key.removeprefix(prefix)) for key in keys if key is not None and key.startswith(prefix)]
        assert numbers == list(range(partition, producer.sent, PARTITIONS)), f"{producer.name} in partition {partition}"
