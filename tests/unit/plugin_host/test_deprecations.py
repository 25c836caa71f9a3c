"""A deprecated name of the author API works, warns, and is told of in the log with the plugin that uses it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from structlog.testing import capture_logs

from diskless_core.plugin import offset_assignment
from diskless_core.plugin.deprecation import (
    Deprecated,
    PluginApiDeprecationWarning,
    deprecated,
    deprecated_names,
)
from diskless_core.plugin_host.discovery import PluginEntryPoint
from diskless_core.plugin_host.loading import LoadedPlugin, load_plugin
from tests.broken_plugins import healthy

NOTICE = Deprecated(since="1.1", instead="diskless_core.plugin.offset_assignment:OffsetAssignment")


@pytest.fixture
def old_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("author_api_of_old")
    module.__getattr__ = deprecated_names(module.__name__, {"OldAssignment": NOTICE})  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_an_old_name_is_what_it_has_become_and_warns(old_module: ModuleType) -> None:
    expected = "author_api_of_old.OldAssignment is deprecated since plugin API 1.1: use .*OffsetAssignment"
    with pytest.warns(PluginApiDeprecationWarning, match=expected):
        assert old_module.OldAssignment is offset_assignment.OffsetAssignment


def test_a_name_that_never_was_is_an_attribute_error(old_module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        _ = old_module.Unknown


def test_a_deprecated_function_works_and_warns() -> None:
    double = deprecated("double", NOTICE)(lambda number: number * 2)
    with pytest.warns(PluginApiDeprecationWarning, match="double is deprecated"):
        assert double(4) == 8


def test_the_log_names_the_plugin_that_uses_it(old_module: ModuleType) -> None:
    def load() -> object:
        assert old_module.OldAssignment
        return healthy

    entry_point = PluginEntryPoint(
        noun="offset_assignment", name="animal", value="x", distribution="zoo", version="1.2", load=load
    )
    with capture_logs() as logs, pytest.warns(PluginApiDeprecationWarning):
        assert isinstance(load_plugin(entry_point), LoadedPlugin)

    [told] = [entry for entry in logs if "deprecated" in entry]
    assert (told["plugin"], told["distribution"], told["log_level"]) == (
        "offset_assignment.animal",
        "zoo 1.2",
        "warning",
    )
    assert "OldAssignment" in told["deprecated"]
