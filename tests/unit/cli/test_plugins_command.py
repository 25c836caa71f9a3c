"""`diskless plugins`: what an operator sees."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from diskless_core.cli import common
from diskless_core.cli.main import main
from diskless_core.plugin_host.discovery import installed_entry_points
from diskless_core.plugin_host.manager import PluginManager
from tests.broken_plugins.bad_backends import FACTORIES
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.broken_plugins.zoo import announce


@pytest.fixture
def diskless(monkeypatch):
    """Run `diskless plugins ...` with some good and some broken plugins installed."""
    installed = [*announce_stand_ins(), announce("healthy"), announce("import_error", name="beast")]
    monkeypatch.setattr(common, "discover_plugins", lambda: PluginManager(installed))

    def run(*args):
        return CliRunner().invoke(main, ["plugins", *map(str, args)])

    return run


@pytest.fixture
def bad_file(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("node.idd=1\nnum.partitions=none\n", encoding="utf-8")
    return path


def test_list_shows_usable_plugins_and_the_traceback_of_the_others(diskless):
    result = diskless("list")

    assert result.exit_code == 0
    assert "sequential (default): Stands in." in result.stdout
    assert "animal: Lives in a zoo." in result.stdout
    assert "offset_assignment.beast of zoo 1.2: importing tests.broken_plugins.import_error failed" in result.stdout
    assert "import a_package_that_nobody_has" in result.stdout


def test_list_as_json_has_type_version_and_location_of_each(diskless):
    listed = json.loads(diskless("list", "--json").stdout)

    animal = next(plugin for plugin in listed["plugins"] if plugin["name"] == "animal")
    assert animal.pop("location").endswith("healthy.py")
    assert animal == {
        "noun": "offset_assignment",
        "name": "animal",
        "default": False,
        "distribution": "zoo",
        "version": "1.2",
        "api_version": "1.0",
        "capabilities": [],
        "help": "Lives in a zoo.",
    }
    (broken,) = listed["quarantined"]
    assert broken["name"] == "beast"
    assert "ModuleNotFoundError" in broken["traceback"]


def test_describe_shows_every_setting_with_its_type_default_and_help(diskless):
    result = diskless("describe", "offset_assignment", "animal")

    assert result.exit_code == 0
    assert "offset_assignment.animal.step.size (long, default 1, ≥ 1)" in result.stdout
    assert "Distance between batches, in offsets." in result.stdout


def test_describe_takes_the_name_that_everything_else_shows(diskless):
    assert diskless("describe", "offset_assignment.animal").stdout == (
        diskless("describe", "offset_assignment", "animal").stdout
    )


def test_describe_asks_for_the_name_of_a_plugin(diskless):
    result = diskless("describe", "offset_assignment")

    assert result.exit_code == 2
    assert "offset_assignment.<name>" in result.stderr


def test_describe_as_json_tells_how_to_set_each_setting(diskless):
    described = json.loads(diskless("describe", "offset_assignment", "animal", "--json").stdout)

    key = next(setting for setting in described["settings"] if setting["secret"])
    assert key["name"] == "offset_assignment.animal.access.key"
    assert key["type"] == "password"
    assert key["environment"] == "DISKLESS_CONFIG_OFFSET_ASSIGNMENT_ANIMAL_ACCESS_KEY"


@pytest.mark.parametrize(
    ("noun", "name", "message"),
    [
        ("offset_assignment", "animel", "did you mean animal?"),
        ("offset_asignment", "animal", "did you mean offset_assignment?"),
        ("offset_assignment", "beast", "import a_package_that_nobody_has"),
    ],
)
def test_describe_says_why_there_is_nothing_to_describe(diskless, noun, name, message):
    result = diskless("describe", noun, name)

    assert result.exit_code == 1
    assert message in result.stderr


def test_validate_shows_every_problem_and_fails(diskless, bad_file):
    result = diskless("validate", bad_file, "--override", "wal_object_store=fspec")

    assert result.exit_code == 1
    assert "server.properties:1: node.idd: there is no such property; did you mean node.id?" in result.stderr
    assert "server.properties:2: num.partitions=none: it should be a valid integer" in result.stderr
    assert "--override: wal_object_store=fspec: there is no wal_object_store 'fspec'" in result.stderr


def test_validate_as_json_counts_the_problems(diskless, bad_file):
    result = diskless("validate", bad_file, "--json")

    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["error_count"] == len(answer["problems"]) == 2
    assert answer["problems"][0] == {
        "key": "node.idd",
        "value": None,
        "message": "there is no such property",
        "suggestion": "node.id",
        "source": "server.properties:1",
    }


@pytest.fixture
def validate(monkeypatch, tmp_path):
    """Run `diskless plugins validate` on some lines, with the built-in plugins and some broken ones installed."""
    broken = [announce("bad_backends", noun="wal_object_store", name=name) for name in FACTORIES]
    installed = [*installed_entry_points(), announce("healthy"), *broken]
    monkeypatch.setattr(common, "discover_plugins", lambda: PluginManager(installed))

    def run(*lines, **options):
        path = tmp_path / "server.properties"
        path.write_text("\n".join([f"log.dirs={tmp_path / 'data'}", *lines]), encoding="utf-8")
        return CliRunner().invoke(main, ["plugins", "validate", str(path), *(f"--{name}" for name in options)])

    return run


def test_validate_accepts_a_good_file_and_says_what_it_selects(validate, monkeypatch):
    monkeypatch.setenv("DISKLESS_CONFIG_NODE_ID", "7")

    result = validate("offset_assignment=animal")

    assert result.exit_code == 0
    assert "offset_assignment=animal" in result.stdout
    answer = json.loads(validate("offset_assignment=animal", json=True).stdout)
    assert answer["plugins"]["wal_object_store"] == "fsspec"


def test_validate_leaves_the_data_alone(validate, tmp_path):
    assert validate().exit_code == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half", "its class Half lacks methods"),
        ("one_argument", "its factory OneArgument(context) should take two arguments"),
        ("forgot_async", "its method get should be `async def get(...)`"),
        ("boom", "RuntimeError: boom"),
        ("no_store", "made object, which is no WalObjectStore"),
        ("made_elsewhere", "its method list should be `async def list(...) with a yield`"),
        ("silent", "it does not say is_node_local: set it in Silent"),
    ],
)
def test_validate_refuses_a_plugin_that_would_not_start(validate, name, message):
    result = validate(f"wal_object_store={name}")

    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert f"wal_object_store={name}: " in line
    assert f"plugin wal_object_store.{name}" in line
    assert message in line


def test_validate_refuses_a_shared_log_without_a_listener_for_brokers(validate):
    shared = "coordinator_log=bucket"
    result = validate(shared)

    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("default: inter.broker.listener.name: ")
    assert "other brokers cannot reach this one" in line
    listeners = "listeners=PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:9093"
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"
    assert validate(shared, listeners, protocols, "inter.broker.listener.name=INTERNAL").exit_code == 0


def test_validate_as_json_has_the_plugin_that_would_not_start(validate):
    answer = json.loads(validate("wal_object_store=boom", json=True).stdout)

    (problem,) = answer["problems"]
    assert (problem["key"], problem["value"]) == ("wal_object_store", "boom")


def test_a_wrong_limit_of_plugins_is_told_before_anything_else(monkeypatch):
    monkeypatch.setenv("DISKLESS_LOAD_PLUGINS", "no-such-distribution")

    result = CliRunner().invoke(main, ["plugins", "list"])

    assert result.exit_code == 1
    assert "DISKLESS_LOAD_PLUGINS names 'no-such-distribution'" in result.stderr
