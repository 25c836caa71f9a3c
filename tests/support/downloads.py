"""Folders below the checkout's `.cache` that are filled once, by whichever process needs them first."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def filled_once(name: str, sources: Iterable[Path], fill: Callable[[Path], None]) -> Path:
    """The folder `.cache/<name>/<hash>`, which `fill` makes unless it is there. Several processes may ask at once.

    Args:
        sources: files whose contents decide what the folder holds; another content has another folder.
        fill: makes the folder that it is given. What it leaves behind when it raises is thrown away.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:16]
    folder = CHECKOUT / ".cache" / name / digest
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            fill(partial)
            partial.rename(folder)
    return folder
