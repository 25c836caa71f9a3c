"""Jars from the Maven registry: those of Apache Kafka, and the connectors of Spark that tests compare with.

Each set comes by a `pom.xml` of its own, once, into `.cache` of the checkout. Run as a program, the module only fetches
them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.downloads import CHECKOUT, filled_once

REQUIRED_VARIABLE = "DISKLESS_REQUIRE_KAFKA"
FETCH_TIMEOUT_S = 600.0

SETS = {"kafka": CHECKOUT / "tests/kafka/pom.xml", "spark": CHECKOUT / "tests/spark/pom.xml"}


class JarsUnavailableError(Exception):
    """There is no Java or no Maven here, or its registry cannot be reached."""


def fetch_jars(name: str) -> Path:
    """The folder with the jars of a set, which are fetched when missing. Several processes may ask at once.

    Raises:
        JarsUnavailableError: they cannot be had.
    """
    return filled_once(name, [SETS[name]], partial(_download, name))


def jars_or_skip(name: str) -> Path:
    """`fetch_jars` for a test: without them it is skipped, or fails where `DISKLESS_REQUIRE_KAFKA` is set."""
    try:
        return fetch_jars(name)
    except JarsUnavailableError as error:
        if os.environ.get(REQUIRED_VARIABLE):
            raise
        pytest.skip(str(error))


def _download(name: str, folder: Path) -> None:
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            raise JarsUnavailableError(f"{command} is missing; `make system-packages` installs it")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(SETS[name]), *goal],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsUnavailableError(f"Maven did not end within {FETCH_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        errors = (line.removeprefix("[ERROR]").strip() for line in done.stdout.splitlines())
        reason = next(filter(None, errors), done.stderr)
        raise JarsUnavailableError(f"Maven cannot fetch the jars of {name}: {reason}")


if __name__ == "__main__":
    try:
        for one in SETS:
            fetch_jars(one)
    except JarsUnavailableError as error:
        sys.exit(str(error))
