"""A minute of chaos for each way to keep the log, of the runs that `make chaos` makes as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.downloads import CHECKOUT

Runs = Mapping[str, tuple[Path, subprocess.Popen[bytes]]]

RUNS: Mapping[str, tuple[str, ...]] = {
    "bucket": ("--seed", "63", "--log", "bucket", "--store", "folder", "--java"),
    "bucket, other faults": ("--seed", "76", "--log", "bucket", "--store", "folder", "--no-java"),
    "kafka": ("--seed", "32", "--log", "kafka", "--kafka-nodes", "1", "--store", "folder", "--no-java"),
}
"""Seeds that bring kills, pauses, restarts and what only this log can suffer. `make chaos` has a real S3 server too."""

MINUTES = "1"
LIMIT_S = 1200.0
_END_S = 30.0


@pytest.fixture(scope="module")
def runs(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """All runs, begun at the same time: they wait most of theirs."""
    del kafka_jars  # they are there when the runs begin
    begun: dict[str, tuple[Path, subprocess.Popen[bytes]]] = {}
    for name, options in RUNS.items():
        folder = tmp_path_factory.mktemp("chaos")
        command = [sys.executable, "-m", "tests.chaos", "--minutes", MINUTES, *options, "--keep", str(folder / "run")]
        with (folder / "told").open("wb") as told:
            process = subprocess.Popen(command, stdout=told, stderr=told, cwd=CHECKOUT)
        begun[name] = folder, process
    yield begun
    for _, process in begun.values():
        process.terminate()
        process.wait(_END_S)


@pytest.mark.timeout(LIMIT_S + _END_S)
@pytest.mark.xdist_group("chaos")
@pytest.mark.parametrize("name", RUNS)
def test_a_cluster_that_is_broken_all_the_time_keeps_its_word(name: str, runs: Runs) -> None:
    folder, process = runs[name]
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    told = (folder / "told").read_text()
    assert code == 0, f"it ended with {code}; {' '.join(RUNS[name])}\n{told}"
    assert "every promise was kept" in told
