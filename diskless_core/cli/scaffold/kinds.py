"""What differs between the projects of different nouns. A new noun is one more entry here and a folder of templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diskless_core.plugin.command_groups import COMMAND_GROUP

WORKER = ("worker.py", "runs what blocks on threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of project.

    Attributes:
        module: the module with the implementation, without `.py`.
        suffix: what the name of its class ends with.
        summary: what the backend does as it is written, for lists; `{}` is its name.
        about: what is in the module, for the README.
        others: further modules of the package, and what is in each.
        properties: what a broker is configured with besides the noun itself, as an example of a setting.
    """

    module: str
    suffix: str
    summary: str
    about: str
    others: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "coordinator_log": Kind(
        module="log",
        suffix="Log",
        summary="Keeps the coordinator log in a file for each shard, for a single broker",
        about="the log: append, read, hints, prune",
        others=dict([("shard_file.py", "the file of one shard"), WORKER]),
        properties={"rewrite.bytes": "16777216"},
    ),
    "coordinator_store": Kind(
        module="store",
        suffix="Store",
        summary="Keeps coordinator state as ordered pairs of keys and values",
        about="the store: tables, writes, snapshots",
        others={"rows.py": "rows as bytes whose order is that of the keys"},
        properties={"cache.bytes": "16777216"},
    ),
    "wal_object_store": Kind(
        module="objects",
        suffix="Objects",
        summary="Keeps WAL objects as files of a folder",
        about="the store: put, get, list, delete",
        others=dict([("folder.py", "what touches the disk"), WORKER]),
        properties={"page.objects": "1000"},
    ),
    "offset_assignment": Kind(
        module="assignment",
        suffix="Assignment",
        summary="Starts every batch at a multiple of a configured number",
        about="the policy, a pure function",
        properties={"multiple.of": "100"},
    ),
    "gateway_placement": Kind(
        module="placement",
        suffix="Placement",
        summary="Chooses the gateways of each rack by a hash",
        about="the policy, a pure function",
        properties={"gateways.per.rack": "2"},
    ),
    "orphan_detection": Kind(
        module="detection",
        suffix="Detection",
        summary="Lists the object store, with pauses, and names what is old enough",
        about="the detector",
        properties={"pause.ms": "100"},
    ),
    "remote_storage": Kind(
        module="storage",
        suffix="Storage",
        summary="Keeps segments as folders of files",
        about="the storage: copy, fetch, delete",
        others=dict([("folder.py", "what touches the disk"), WORKER]),
        properties={"folder": "/var/lib/segments"},
    ),
    "remote_log_metadata": Kind(
        module="metadata",
        suffix="Metadata",
        summary="Keeps the metadata of segments in a file of the broker",
        about="the keeper: notes events, and finds segments",
        others=dict([WORKER]),
        properties={"file": "segments.db"},
    ),
    "segment_compaction": Kind(
        module="engine",
        suffix="Compaction",
        summary="Makes one segment after the other, in memory",
        about="the engine",
        properties={"max.segment.bytes": "1073741824"},
    ),
    COMMAND_GROUP: Kind(
        module="commands",
        suffix="Commands",
        summary="Tells operators where backends keep their data",
        about="the commands, a typer application",
    ),
}
"""Kinds of projects by noun, and the one for commands."""
