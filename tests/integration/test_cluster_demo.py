"""The cluster's demo as a new user runs it, with little time between faults; and the ways in which it may fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from diskless_core.cli.cluster_demo import bucket, show
from diskless_core.cli.cluster_demo.brokers import Brokers
from diskless_core.cli.cluster_demo.story import Act
from diskless_core.cli.main import main
from diskless_core.clock import SystemClock
from tests.support.waiting import wait_until

LIMIT_S = 1200.0
PATIENCE_S = 300.0
pytestmark = pytest.mark.timeout(LIMIT_S + 100)
COMMAND = [sys.executable, "-c", "from diskless_core.cli.main import main; main()", "cluster", "demo"]
QUICK = ["--pace", "0.3", "--rate", "200", "--patience", f"{PATIENCE_S:.0f}"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the demo makes its folder; no process that works on it may be left."""
    yield tmp_path
    assert processes_on(tmp_path) == []


def processes_on(folder: Path) -> list[str]:
    """The command lines of all processes that name the folder."""
    lines = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [*COMMAND, *QUICK, *options],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    except subprocess.TimeoutExpired as error:
        told = (error.stdout or b"") + (error.stderr or b"")
        raise AssertionError(f"after {LIMIT_S:.0f} s the demo was at:\n{told.decode()}") from None


def test_a_cluster_on_a_folder_is_broken_in_every_way_and_nothing_is_lost_doubled_or_out_of_order(folder: Path):
    done = run(folder, "--brokers", "3", "--racks", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 doubled, 0 out of order" in done.stdout
    proved = done.stdout.partition("longest gap")[2]
    assert [act.value for act in Act if act.value in proved] == [act.value for act in Act]
    assert list(folder.iterdir()) == []


def test_so_is_one_on_s3_in_one_rack(folder: Path):
    done = run(folder, "--brokers", "2", "--racks", "1", "--s3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 doubled, 0 out of order" in done.stdout
    assert "bucket: " in done.stdout
    assert Act.STOP_RACK.value not in done.stdout
    assert list(folder.iterdir()) == []


def test_an_interrupted_demo_leaves_nothing_behind(folder: Path):
    output = folder / "output"
    (folder / "tmp").mkdir()
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [*COMMAND, *QUICK, "--brokers", "2", "--racks", "2"],
            stdout=file,
            stderr=file,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
        ) as demo,
    ):
        try:
            wait_until(lambda: b"are at work" in output.read_bytes(), "clients are at work")
            demo.send_signal(signal.SIGINT)
            assert demo.wait(PATIENCE_S) == 130, output.read_text()
        finally:
            demo.kill()
    assert "interrupted" in output.read_text()
    assert list((folder / "tmp").iterdir()) == []


def test_a_demo_that_is_killed_takes_its_brokers_with_it(folder: Path):
    output = folder / "output"
    (folder / "tmp").mkdir()
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [*COMMAND, *QUICK, "--brokers", "2", "--racks", "2"],
            stdout=file,
            stderr=file,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
        ) as demo,
    ):
        try:
            wait_until(lambda: b"are at work" in output.read_bytes(), "clients are at work")
            assert len(processes_on(folder)) == 2
        finally:
            demo.kill()
    wait_until(lambda: processes_on(folder) == [], "the brokers have ended")


def test_a_broker_that_does_not_start_ends_the_demo_with_its_log_which_is_kept_on_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def nowhere(_folder: Path) -> bucket.Bucket:
        return bucket.Bucket(place="nowhere", properties={"broker.session.timeout.ms": "soon"}, requests=dict)

    monkeypatch.setattr(bucket, "in_folder", nowhere)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    done = CliRunner().invoke(main, ["cluster", "demo", "--keep", *QUICK])
    assert done.exit_code == 1
    assert "instead of starting" in done.output
    assert "broker.session.timeout.ms" in done.output
    [kept] = folder.iterdir()
    assert (kept / "broker-1" / "broker.log").exists()
    assert f"kept: {kept}" in done.output


def test_a_demo_that_finds_something_wrong_ends_with_an_error_that_says_what(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(show.Show, "run", lambda _: ["3 records were acknowledged and are lost"])
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    done = CliRunner().invoke(main, ["cluster", "demo"])
    assert done.exit_code == 1
    assert "3 records were acknowledged and are lost" in done.output
    assert list(folder.iterdir()) == []


def test_what_cannot_be_is_refused_before_anything_is_started():
    done = CliRunner().invoke(main, ["cluster", "demo", "--brokers", "2", "--racks", "3"])
    assert done.exit_code == 1
    assert "--racks is 3" in done.output


def test_without_an_s3_server_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bucket, "find_spec", lambda _: None)
    done = CliRunner().invoke(main, ["cluster", "demo", "--s3"])
    assert done.exit_code == 1
    assert "pip install 'diskless[demo-s3]'" in done.output


def test_a_broker_that_ends_by_itself_is_noticed(folder: Path):
    shared = bucket.in_folder(folder / "bucket").properties
    with Brokers(folder, 1, shared, SystemClock(), PATIENCE_S) as brokers:
        brokers.start(1)
        assert brokers.unexpected() == []
        os.kill(brokers.pid(1), signal.SIGKILL)
        found = wait_until(brokers.unexpected, "its end is noticed")
    assert "broker-1 ended by itself with code -9" in found[0]
