"""Prometheus' own checker of rules, taken out of Debian's package: nothing of it is installed, no service started.

`python -m tests.support.promtool` fetches it ahead of the tests.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.downloads import filled_once

PACKAGE = "prometheus"


def promtool() -> Path:
    """The program; the first call downloads it.

    Raises:
        subprocess.CalledProcessError: the package cannot be had; its output was printed.
    """
    return filled_once("promtool", [Path(__file__)], _fill) / "usr/bin/promtool"


def _fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    download = ["apt-get", "download", "-q", PACKAGE]
    if subprocess.run(download, cwd=folder).returncode != 0:  # a new machine has no lists of packages yet
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(download, cwd=folder, check=True)
    [package] = folder.glob("*.deb")
    unpack = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", folder, "./usr/bin/promtool"], stdin=unpack.stdout, check=True)
    assert unpack.stdout is not None
    unpack.stdout.close()
    unpack.wait()
    package.unlink()


if __name__ == "__main__":
    print(promtool())
