"""What `spark-submit` is given: the command `diskless compact --here --engine spark`, with the arguments behind it.

It runs on the machine where spark-submit does (deploy mode `client`), or, with `--deploy-mode cluster`, on one of the
cluster's. There and on the executors, `diskless` and `diskless-spark` have to be installed.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Where spark-submit says how the program that it runs reaches its Spark."""

COMPACT = ("compact", "--here", "--engine", "spark")


def main() -> None:
    """Run the command, or say how, where no spark-submit has begun this program."""
    here = Path(__file__).resolve()
    if GATEWAY_VARIABLE not in os.environ:
        sys.stdout.write(f"spark-submit --master MASTER {here} --all --config server.properties\n")
        return
    # A program's own folder comes first in the path: modules in it would hide others of the same names.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here.parent]
    [command] = entry_points(group="console_scripts", name="diskless")
    sys.argv = [command.name, *COMPACT, *sys.argv[1:]]
    command.load()()


if __name__ == "__main__":
    main()
