"""The node id that the cluster gave to this broker, in a file of its data folder: Kafka's `meta.properties`.

The allocation id is drawn and written before the node id is asked for, so a broker that dies in between asks for the
same one again. A broker whose node id is configured has no such file. Everything here blocks.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from diskless_core.broker.errors import StartError
from diskless_core.plugin.folders import sync_folder, write_durably

FILE_NAME = "meta.properties"
VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What is known of a broker's node id.

    Attributes:
        allocation_id: what it is asked for with.
        node_id: None until the cluster has given it.
    """

    allocation_id: uuid.UUID
    node_id: int | None = None


class IdentityFile:
    """The file in one data folder, which this process has locked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME

    def read(self) -> NodeIdentity | None:
        """What was written last; None where there is no file.

        Raises:
            StartError: the file is damaged, or of a version that is not known.
        """
        try:
            found = javaproperties.loads(self.path.read_text(encoding="utf-8"))
            if found.get("version") != VERSION:
                raise ValueError(f"its version is {found.get('version')}, not {VERSION}")
            node_id = int(found["node.id"]) if "node.id" in found else None
            if node_id is not None and node_id < 0:
                raise ValueError(f"the node id {node_id} is none")
            return NodeIdentity(allocation_id=uuid.UUID(found["allocation.id"]), node_id=node_id)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            raise StartError(
                f"{self.path}, which has this broker's node id, cannot be read: {error}. Mend it, or delete it: then "
                f"the cluster gives the broker another node id"
            ) from error

    def write(self, identity: NodeIdentity) -> None:
        """Put this into the file, durably.

        Raises:
            StartError: the folder cannot be written.
        """
        found = {"version": VERSION, "allocation.id": str(identity.allocation_id)}
        if identity.node_id is not None:
            found["node.id"] = str(identity.node_id)
        try:
            write_durably(self.path, javaproperties.dumps(found, timestamp=False).encode())
        except OSError as error:
            raise StartError(f"{self.path} cannot be written: {error}") from error

    def forget(self) -> None:
        """Delete the file, so that another node id is asked for: the controller has said that this one is retired.

        That is never taken back, and no other process has the folder.
        """
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)
