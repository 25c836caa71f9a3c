"""Every kind of broken plugin is quarantined with a reason that its author can act on."""

from __future__ import annotations

import pytest

from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin_host.loading import LoadedPlugin, QuarantinedPlugin, load_commands, load_plugin
from diskless_core.plugin_host.nouns import NOUNS
from tests.broken_plugins.zoo import announce, quarantined


def test_the_healthy_plugin_is_loaded_so_that_the_others_fail_for_their_own_reason():
    loaded = load_plugin(announce("healthy"))

    assert isinstance(loaded, LoadedPlugin)
    assert loaded.descriptor.help == "Lives in a zoo."
    assert loaded.location.endswith("healthy.py")


def test_an_import_error_is_shown_with_its_traceback():
    result = quarantined(announce("import_error"))

    assert result.reason == (
        "importing tests.broken_plugins.import_error failed: "
        "ModuleNotFoundError: No module named 'a_package_that_nobody_has'"
    )
    assert "import a_package_that_nobody_has" in result.traceback_text


def test_a_module_that_ends_the_process_does_not_end_the_broker():
    result = quarantined(announce("exits_at_import"))

    assert "SystemExit: no licence found" in result.reason
    assert "sys.exit" in result.traceback_text


def test_an_exception_in_a_hook_is_shown_with_its_traceback():
    result = quarantined(announce("raises_in_hook"))

    assert result.reason == ("its hook diskless_offset_assignments raised ConnectionError: the licence server is down")
    assert "raise ConnectionError" in result.traceback_text


@pytest.mark.parametrize(
    ("module", "noun", "returned"),
    [
        ("yields_descriptors", "offset_assignment", "returned generator, not a list of OffsetAssignmentPlugin"),
        ("returns_nothing", "offset_assignment", "returned NoneType, not a list of OffsetAssignmentPlugin"),
        (
            "other_noun",
            "coordinator_store",
            "returned a list with OffsetAssignmentPlugin, not a list of CoordinatorStorePlugin",
        ),
    ],
)
def test_a_hook_has_to_return_a_list_of_its_nouns_descriptors(module, noun, returned):
    result = quarantined(announce(module, noun=noun))

    assert result.reason == f"its hook {NOUNS[noun].hook} {returned}"


def test_a_misspelt_hook_is_found_even_where_the_wanted_hook_is_right():
    result = quarantined(announce("misspelt_hook"))

    assert result.reason == (
        "its function 'diskless_coordinator_store' is decorated with @hookimpl but is no hook, "
        "did you mean 'diskless_coordinator_stores'?"
    )


def test_a_hook_that_wants_arguments_is_told_what_does_not_fit():
    result = quarantined(announce("wrong_arguments"))

    assert "does not fit its specification" in result.reason
    assert "'config'" in result.reason


def test_a_module_without_the_hook_is_told_which_one_it_needs():
    result = quarantined(announce("no_hook"))

    assert result.reason == "its module has no function diskless_offset_assignments decorated with @hookimpl"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "older_major",
            (
                "it was written for plugin API 0.9, this broker offers 1.0: the major versions differ, "
                "install a version of the plugin for plugin API 1, or a Diskless that offers 0"
            ),
        ),
        (
            "newer_major",
            (
                "it was written for plugin API 2.0, this broker offers 1.0: the major versions differ, "
                "install a version of the plugin for plugin API 1, or a Diskless that offers 2"
            ),
        ),
        ("newer_minor", "it needs plugin API 1.1 or newer, this broker offers 1.0: upgrade the broker"),
        ("nonsense", "its api_version is 'latest', which is not of the form <major>.<minor>, such as '1.0'"),
        ("number", "its api_version is 1.0, which is not a string: put it in quotes"),
    ],
)
def test_a_plugin_for_another_api_version_is_refused(name, reason):
    assert quarantined(announce("api_versions", name=name)).reason == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_help", "its help is None, which is not a string"),
        ("one_ability", "its capabilities are 'survives_kill', which is not a set of strings"),
        ("abilities_unnamed", "its capabilities are {1}, which is not a set of strings"),
        ("place", "its place_apart is str, which can't be called"),
        ("settings_made", "its settings are not a subclass of PluginSettings"),
        (
            "several",
            (
                "its api_version is 1, which is not a string: put it in quotes; "
                "its help is b'Lives in a zoo.', which is not a string"
            ),
        ),
    ],
)
def test_a_descriptor_with_a_value_of_the_wrong_type_is_told_which(name, reason):
    assert quarantined(announce("mistyped", name=name)).reason == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_app", "its app is None, which is not a string"),
        ("number", "its api_version is 1.0, which is not a string: put it in quotes"),
    ],
)
def test_commands_with_a_value_of_the_wrong_type_are_told_which(name, reason):
    result = load_commands(announce("mistyped", noun=COMMAND_GROUP, name=name))

    assert isinstance(result, QuarantinedPlugin)
    assert result.reason == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "bad_default",
            "the default of its setting 'buffer_bytes' is not valid: Input should be greater than or equal to 1",
        ),
        ("no_description", "its setting 'buffer.bytes' has no description"),
        ("no_plugin_settings", "its settings are not a subclass of PluginSettings"),
    ],
)
def test_mistakes_in_a_settings_model_show_when_it_is_declared(name, reason):
    assert quarantined(announce("bad_settings", name=name)).reason == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("numbers", "its setting 'ports' can't be set, for properties are texts: use CommaSeparated for a list"),
        ("lists_of_lists", "its setting 'racks' can't be set"),
        ("nested", "its setting 'limits' can't be set"),
        ("camel_case", "its setting 'maxBytes' is not named in snake_case"),
    ],
)
def test_a_setting_that_no_property_could_set_shows_when_it_is_declared(name, reason):
    assert quarantined(announce("bad_settings", name=name)).reason.startswith(reason)


def test_a_setting_of_any_type_that_reads_text_is_accepted():
    assert isinstance(load_plugin(announce("bad_settings", name="read_from_text")), LoadedPlugin)


def test_a_class_without_all_methods_is_told_which_it_lacks():
    result = quarantined(announce("bad_backends", noun="wal_object_store", name="half"))

    assert result.reason == "its class Half lacks methods, write them: delete, get, list, put, stop"


def test_a_factory_that_takes_other_arguments_is_told_which_it_will_get():
    result = quarantined(announce("bad_backends", noun="wal_object_store", name="one_argument"))

    assert result.reason == (
        "its factory OneArgument(context) should take two arguments: a PluginContext and the settings"
    )


def test_methods_of_the_wrong_kind_are_told_all_at_once():
    result = quarantined(announce("bad_backends", noun="wal_object_store", name="forgot_async"))

    assert result.reason == "; ".join(
        [
            "its method get should be `async def get(...)`, as WalObjectStore has it",
            "its method list should be `async def list(...) with a yield`, as WalObjectStore has it",
        ]
    )


def test_a_listing_that_returns_a_list_is_told_to_yield():
    result = quarantined(announce("bad_backends", noun="wal_object_store", name="returns_list"))

    assert result.reason == "its method list should be `async def list(...) with a yield`, as WalObjectStore has it"


def test_async_where_the_broker_does_not_wait_is_refused():
    result = quarantined(announce("bad_backends", noun="coordinator_store", name="async_open"))

    assert result.reason == "its method open should be `def open(...), not async`, as CoordinatorStore has it"


def test_methods_that_only_look_like_another_kind_are_accepted():
    result = load_plugin(announce("bad_backends", noun="wal_object_store", name="decorated"))

    assert isinstance(result, LoadedPlugin)


def test_a_name_that_differs_from_the_entry_points_is_refused():
    result = quarantined(announce("healthy", name="beast"))

    assert result.reason == "its entry point announces 'beast', but its hook returned 'animal'"


def test_one_hook_cannot_return_a_name_twice():
    assert quarantined(announce("twins")).reason == "its hook returned 2 descriptors named 'animal'"


@pytest.mark.parametrize(
    ("noun", "name", "reason"),
    [
        (
            "offset_assignments",
            "animal",
            "its entry point names the unknown noun 'offset_assignments', did you mean 'offset_assignment'?",
        ),
        ("animal", "", "its entry point 'animal' is not named <noun>.<name>"),
        ("offset_assignment", "Animal-1", "the name 'Animal-1' is not lower-case letters, digits and underscores"),
    ],
)
def test_an_entry_point_has_to_be_named_after_noun_and_name(noun, name, reason):
    assert quarantined(announce("healthy", noun=noun, name=name)).reason == reason
