"""Batches in the objects of a stopped broker, changed in place, as earlier releases took them or a disk spoils them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diskless_core.wal.format import read_index


def change_batch(data: Path, batch: bytes, change: Callable[[bytes], bytes]) -> str:
    """Replace the one batch with these bytes, in the objects of a broker that does not run.

    Args:
        data: the broker's `log.dirs`.
        change: makes another batch of the same size.

    Returns:
        The object's key.
    """
    objects = data / "wal-objects"
    for path in (one for one in objects.rglob("*") if one.is_file()):
        content = path.read_bytes()
        at = content.find(batch[12:])  # what precedes is not the producer's to say
        if at >= 0:
            read_index(content)  # it is a whole object
            changed = change(batch)
            assert len(changed) == len(batch)
            path.write_bytes(content[:at] + changed[12:] + content[at + len(batch) - 12 :])
            return str(path.relative_to(objects))
    raise AssertionError(f"no object below {objects} has the batch")
