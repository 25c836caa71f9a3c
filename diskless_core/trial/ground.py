"""What a test of a trial has: a place of its own, and a loop beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.plugin_host.nouns import Noun
from diskless_core.trial.grounds import NODE_ID, Grounds, Place
from diskless_core.trial.loop_thread import LoopThread

InterfaceT = TypeVar("InterfaceT")


class Ground:
    """One place of a trial, as tests use it.

    Attributes:
        thread: a loop that outlives the test's own.
        starts_quickly: whether an instance can be started for each test.
    """

    def __init__(self, grounds: Grounds, place: Place, thread: LoopThread, *, starts_quickly: bool) -> None:
        self.thread = thread
        self.starts_quickly = starts_quickly
        self._grounds = grounds
        self._place = place

    def create(self, noun: Noun[InterfaceT], *, node_id: int = NODE_ID, before: Any = None) -> InterfaceT:
        """As `Place.create`."""
        return self._place.create(noun, node_id=node_id, before=before)

    def store_source(self) -> Callable[[], CoordinatorStore]:
        """As `Place.store_source`."""
        return self._place.store_source()

    def folder(self) -> Path:
        """A folder of the place, which may not exist yet."""
        return self._place.folder

    def remove(self) -> None:
        """Empty and remove the place."""
        self.thread.run(self._grounds.remove(self._place))
