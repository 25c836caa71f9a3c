"""The ids of the log's topics, as this node met them first, in a file: a topic made anew has the same name only."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.folders import make_folder, sync_folder
from diskless_core.protocol.names import uuid_text

_NAME = "topic-ids.json"


class TopicIds:
    """What a node remembers. Its methods block, and raise CoordinatorLogError; one thread at a time may call them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._known: dict[str, str] = {}

    def load(self) -> None:
        """Read what an earlier process remembered."""
        try:
            known = json.loads(self._path.read_text())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise CoordinatorLogError(
                f"{self._path} cannot be read: {error}. It has the ids of the coordinator log's topics: without it, a "
                "topic that was made anew is not noticed"
            ) from error
        self._known = {str(name): str(topic_id) for name, topic_id in known.items()}

    def require(self, name: str, topic_id: uuid.UUID) -> None:
        """Raise if a topic of this name had another id before."""
        known = self._known.get(name)
        if known not in (None, uuid_text(topic_id)):
            raise CoordinatorLogError(
                f"the topic {name} has the id {uuid_text(topic_id)} and had {known} before: it was deleted and made "
                f"anew, or coordinator_log.kafka.bootstrap.servers names another Apache Kafka. {self._advice()}"
            )

    def require_unknown(self, name: str) -> None:
        """Raise if there was a topic of this name before."""
        if name in self._known:
            raise CoordinatorLogError(
                f"the topic {name}, which had the id {self._known[name]}, is gone: it was deleted, or "
                f"coordinator_log.kafka.bootstrap.servers names another Apache Kafka. {self._advice()}"
            )

    def remember(self, name: str, topic_id: uuid.UUID) -> None:
        """Keep the id of a topic, durably."""
        if name in self._known:
            return
        known = {**self._known, name: uuid_text(topic_id)}
        temporary = self._path.with_suffix(".tmp")
        try:
            make_folder(self._path.parent)
            with temporary.open("w") as file:
                json.dump(known, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise CoordinatorLogError(f"the id of the topic {name} cannot be kept: {error}") from error
        self._known = known

    def _advice(self) -> str:
        return (
            "What was committed there is gone. Nothing was changed: bring the topic back. To give up for good what it "
            f"had, delete {self._path}, the coordinator stores and the snapshots in the object store, on every broker"
        )
