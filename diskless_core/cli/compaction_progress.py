"""Shows in the terminal how far a compaction is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

Show = Callable[[str, int, int], None]
"""Shows the state of a job, and how many bytes of how many it has copied."""


@contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Show]:
    """A bar below the text, while it is open. Without a terminal there is none."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    disable = not (wanted and sys.stderr.isatty())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disable) as progress:
        bar = progress.add_task("", total=None)
        yield lambda state, done_bytes, all_bytes: progress.update(
            bar, description=state, completed=done_bytes, total=all_bytes
        )
