"""The project's own wheel, built with the compiled walk of records."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.environments import PROJECT

UNWANTED = shutil.ignore_patterns(".*", "tests", "docs", "contrib", "spark", "__pycache__", "*.so", "diskless-data")
LOOK = "from diskless_core.protocol import record_walk as w; print(w.is_compiled(), w.__name__, w.walk(iter([%r]), 1))"


def test_a_wheel_that_is_built_on_demand_has_the_compiled_walk_and_is_for_this_platform(tmp_path: Path) -> None:
    source = shutil.copytree(PROJECT, tmp_path / "source", ignore=UNWANTED)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "wheel"],
        cwd=source,
        env={**os.environ, "HATCH_BUILD_HOOKS_ENABLE": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    [wheel] = (tmp_path / "wheel").glob("*.whl")
    assert not wheel.name.endswith("-none-any.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    record = b"\x0c\0\0\0\x01\x01\0"
    done = subprocess.run(
        [sys.executable, "-c", LOOK % record],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    expected = "True diskless_core.protocol.record_walk Walked(earliest_delta=0, latest_delta=0, is_consecutive=True)"
    assert done.stdout.strip() == expected
