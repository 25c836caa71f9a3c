"""`diskless serve` as a process: its addresses, its limits, its log."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.broker import BrokerProcess
from tests.support.requests import create_topic
from tests.support.waiting import wait_until

COMMAND = Path(sys.executable).with_name("diskless")
HARD_LIMIT = 200
WITHOUT_RESERVE = HARD_LIMIT - HARD_LIMIT // 4


@pytest.fixture
def limited(tmp_path):
    """A broker whose process may open few files, and fewer still unless it asks for more."""
    command = tmp_path / "bin" / "diskless"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nulimit -Sn 100 && ulimit -Hn {HARD_LIMIT} || exit 1\nexec "{COMMAND}" "$@"\n')
    command.chmod(0o755)
    broker = BrokerProcess(
        tmp_path / "broker", {"admin.listener": "http://127.0.0.1:0"}, python=command.with_name("python")
    )
    broker.start()
    yield broker
    broker.end()


def metric(broker: BrokerProcess, name: str) -> float:
    with urlopen(f"{broker.admin}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"diskless_{name} "))


def test_an_http_address_that_is_taken_ends_the_start_with_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [
                *(str(COMMAND), "serve", "-o", f"log.dirs={tmp_path}", "-o", "listeners=PLAINTEXT://127.0.0.1:0"),
                *("-o", f"admin.listener={address}"),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert line.startswith(f"cannot listen on admin.listener={address}: Address already in use")
    assert line.endswith("Set it to another address, or to nothing")


def test_connections_above_the_limit_of_open_files_are_refused_and_the_broker_goes_on(limited):
    connections = [limited.connect() for _ in range(WITHOUT_RESERVE)]
    try:
        assert connections[-1].is_closed()
        create_topic(connections[0], "t")
        assert 20 < metric(limited, "connections") == WITHOUT_RESERVE - metric(limited, "connections_refused_total")
    finally:
        for connection in connections:
            connection.close()
    assert limited.log_text().count("connections were refused") == 1
    assert f"open_files_limit={HARD_LIMIT}" in limited.log_text()
    wait_until(lambda: metric(limited, "connections") == 0, "the broker saw all connections end")
    with limited.connect() as wire:
        create_topic(wire, "u")


STREAMS = """\
#!{python}
import os, sys

reader, writer = os.pipe()
os.close(reader)
for fd in (0, 1, 2):
    if sys.argv[0].endswith("closed"):
        os.close(fd)
    else:
        os.dup2(writer, fd)
os.execv("{command}", ["diskless", *sys.argv[1:]])
"""


def broker_with_streams(folder, how):
    """A broker whose standard streams are all `closed`, or `broken`: pipes whose other end is gone."""
    command = folder / "bin" / "diskless"
    command.parent.mkdir()
    script = command.with_name(how)
    script.write_text(STREAMS.format(python=sys.executable, command=COMMAND))
    script.chmod(0o755)
    command.write_text(f'#!/bin/sh\nexec "{script}" "$@"\n')
    command.chmod(0o755)
    return BrokerProcess(
        folder / "broker", {"admin.listener": "http://127.0.0.1:0"}, python=command.with_name("python")
    )


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_a_broker_whose_standard_streams_cannot_be_used_serves_says_so_and_stops_when_its_terminal_goes(tmp_path, how):
    broker = broker_with_streams(tmp_path, how)
    broker.start()
    try:
        with broker.connect() as wire:
            create_topic(wire, "t")
        with urlopen(f"{broker.admin}/health/ready") as answer:
            warnings = json.load(answer)["warnings"]
        lost = metric(broker, 'log_lines_lost_total{reason="failed"}')
        streams = {Path(f"/proc/{broker.pid}/fd/{fd}").readlink() for fd in range(3)}
        os.kill(broker.pid, signal.SIGHUP)
        assert broker._process.wait(300) == 0
    finally:
        broker.end()
    if how == "closed":
        assert streams == {Path(os.devnull)}
        assert (warnings, lost) == ([], 0)
    else:
        assert any("standard error can't be written: Broken pipe" in warning for warning in warnings)
        assert lost > 0


def test_the_log_says_which_version_serves_which_cluster_and_a_clean_stop_warns_of_nothing(new_broker):
    broker = new_broker({"cluster.id": "mycluster"})
    broker.stop()

    log = broker.log_text()
    (ready,) = [line for line in log.splitlines() if "ready for clients" in line]
    assert f"version={version('diskless')}" in ready
    assert "cluster=mycluster" in ready
    assert "no longer leads" in log
    assert "[warning" not in log
