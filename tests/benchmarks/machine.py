"""What a machine is and can do: its description, and two baselines that figures of other machines compare by."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

MIB = 1 << 20
GIB = 1 << 30
CHUNK = 8 * MIB
"""As large as a WAL object by default."""

UPLOADS = 4
"""As many as the broker has under way by default."""


def describe() -> str:
    """Processor, cores, memory and Python in a line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    memory_gib = psutil.virtual_memory().total / (1 << 30)
    return f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"


def disk_write_mb_s(folder: Path, total: int = 512 * MIB) -> float:
    """Files of 8 MiB, each with its fsync, four at a time as the broker uploads WAL objects, in MB/s."""
    data = os.urandom(CHUNK)
    targets = [folder / f"baseline-{number}" for number in range(total // CHUNK)]
    began = time.perf_counter()
    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(lambda target: _write_durably(target, data), targets))
    return total / (time.perf_counter() - began) / 1e6


def loopback_mb_s(total: int = 4096 * MIB) -> float:
    """One thread sending to another over TCP on 127.0.0.1, in MB/s: what the kernel's copies alone cost."""
    data, buffer = bytes(CHUNK), bytearray(CHUNK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname()[1], data, total // CHUNK))
        began = time.perf_counter()
        sender.start()
        connection, _ = server.accept()
        with connection:
            while connection.recv_into(buffer):
                pass
        elapsed = time.perf_counter() - began
        sender.join()
    return total / elapsed / 1e6


def _write_durably(target: Path, data: bytes) -> None:
    with target.open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


def _send(port: int, data: bytes, times: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(times):
            connection.sendall(data)
