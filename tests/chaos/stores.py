"""Where the brokers of a run keep their objects: something that all of them reach, each through a proxy of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.support.versitygw import VersityGateway

BUCKET = "chaos"


class Store(Protocol):
    """Attributes:
    port: where it answers on loopback; None if it is no server, so that nothing can come between.
    """

    @property
    def port(self) -> int | None: ...

    def start(self) -> None:
        """Start it and wait until it answers."""

    def end(self) -> None:
        """Make sure that no process is left."""

    def properties(self, port: int | None) -> Mapping[str, str]:
        """What a broker has to be told that reaches it by a port of loopback, its own or a proxy's."""


class FolderStore:
    """A folder of this host."""

    port = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "objects"

    def start(self) -> None:
        self._folder.mkdir(parents=True)

    def end(self) -> None:
        pass

    def properties(self, port: int | None) -> Mapping[str, str]:
        del port
        return {"wal_object_store.fsspec.url": f"file://{self._folder}"}


class S3Store:
    """A real S3 server."""

    def __init__(self, folder: Path) -> None:
        self._server = VersityGateway(folder, BUCKET)
        self.port = self._server.port

    def start(self) -> None:
        self._server.start()

    def end(self) -> None:
        self._server.end()

    def properties(self, port: int | None) -> Mapping[str, str]:
        return self._server.properties(f"http://127.0.0.1:{port}")
