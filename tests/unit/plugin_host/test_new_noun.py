"""A noun that is entered in the table, and nowhere else, is one like the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from pydantic import Field

from diskless_core.clock import SystemClock
from diskless_core.config import reference
from diskless_core.config.errors import ConfigError
from diskless_core.config.load import load_config
from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookimpl, hookspec
from diskless_core.plugin_host.contexts import contexts_in
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS, Noun, backend_errors
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.broken_plugins.zoo import announce


class BirdWatchError(Exception):
    """Nothing could be seen."""


class BirdWatch(ABC):
    """What is in the air."""

    is_indoors: bool

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def count(self, species: str, *, minutes: int) -> int: ...

    @abstractmethod
    def flock(self) -> AsyncIterator[str]: ...

    @abstractmethod
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BirdWatchPlugin(Descriptor[BirdWatch]):
    noun = "bird_watch"


@hookspec
def diskless_bird_watches() -> list[BirdWatchPlugin]:
    """Watches of birds."""
    raise NotImplementedError


class HideSettings(PluginSettings):
    patience: int = Field(default=1, ge=1, description="How many minutes it waits.")


class Hide(BirdWatch):
    is_indoors = False

    def __init__(self, context: PluginContext, settings: HideSettings) -> None:
        self._patience = settings.patience

    async def start(self) -> None:
        self.is_indoors = True

    async def count(self, species: str, *, minutes: int) -> int:
        if species == "owl":
            raise OSError("it is dark")
        return self._patience * minutes

    async def flock(self) -> AsyncIterator[str]:
        yield "swift"
        raise KeyError("gone")

    def name(self) -> str:
        return "hide"


class HookModule:
    """What the entry point leads to."""

    @staticmethod
    @hookimpl
    def diskless_bird_watches() -> list[BirdWatchPlugin]:
        return [
            BirdWatchPlugin(name="hide", factory=Hide, settings=HideSettings, api_version="1.0", help="Sits and waits.")
        ]


@pytest.fixture
def noun(monkeypatch: pytest.MonkeyPatch) -> Noun[BirdWatch]:
    entry = Noun(
        descriptor=BirdWatchPlugin,
        interface=BirdWatch,
        spec=diskless_bird_watches,
        error=BirdWatchError,
        help="Which birds there are.",
        default="hide",
    )
    monkeypatch.setitem(NOUNS, entry.name, entry)  # type: ignore[arg-type]
    return entry


@pytest.fixture
def manager(noun: Noun[BirdWatch]) -> PluginManager:
    others = [entry_point for entry_point in announce_stand_ins() if entry_point.noun != noun.name]
    hide = replace(announce(__name__, noun=noun.name, name="hide"), load=lambda: HookModule)
    return PluginManager([*others, hide])


def test_it_has_its_property_its_default_and_its_settings(manager):
    assert load_config(None, [], {}, manager).plugins["bird_watch"].descriptor.name == "hide"
    chosen = load_config(None, ["bird_watch.hide.patience=3"], {"DISKLESS_CONFIG_BIRD_WATCH": "hide"}, manager)
    assert chosen.plugins["bird_watch"].settings == HideSettings(patience=3)
    with pytest.raises(ConfigError, match=r"did you mean bird_watch\.hide\.patience"):
        load_config(None, ["bird_watch.hide.patients=3"], {}, manager)


def test_it_is_listed_behind_the_others(manager):
    assert [plugin.entry_point.key for plugin in manager.catalogue().loaded][-1] == "bird_watch.hide"
    assert not manager.catalogue().quarantined


async def test_its_backends_are_made_and_raise_nothing_but_its_own_errors(noun, manager, tmp_path):
    selected = load_config(None, ["bird_watch.hide.patience=2"], {}, manager).plugins
    watch = manager.create(noun, selected, contexts_in(tmp_path, SystemClock(), node_id=1))

    assert isinstance(watch, BirdWatch)
    assert not watch.is_indoors
    await watch.start()
    assert watch.is_indoors
    assert watch.name() == "hide"
    assert await watch.count("swift", minutes=3) == 6
    with pytest.raises(BirdWatchError, match=r"bird_watch\.hide raised OSError: it is dark"):
        await watch.count("owl", minutes=1)
    flock = watch.flock()
    assert await anext(flock) == "swift"
    with pytest.raises(BirdWatchError, match="KeyError"):
        await anext(flock)
    assert BirdWatchError in backend_errors()


def test_it_is_on_the_pages_that_name_all_nouns(noun, manager):
    descriptors = {noun.name: [manager.get("bird_watch", "hide").descriptor]}

    assert "| [`bird_watch`](plugins/bird_watch.md) | `hide` |" in reference.render_reference(descriptors)
    assert "`bird_watch.hide.patience`" in reference.render_reference(descriptors)
    assert "| Which birds there are. | `hide`: Sits and waits |" in reference.render_nouns(descriptors)
    assert reference.render_navigation().endswith("      - bird_watch: plugins/bird_watch.md\n")
