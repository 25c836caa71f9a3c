"""A plugin from outside: built, installed beside a built wheel of Diskless, found by its entry points, and run."""

from __future__ import annotations

import json
import site
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.support.batches import batch_of, batch_ranges, read_values
from tests.support.broker import BrokerProcess
from tests.support.environments import PROJECT, environment_with, run, site_packages
from tests.support.requests import append, create_topic, fetch, list_offset, produce_request

PLUGIN = Path(__file__).parent / "external_plugin"
SELECTED = {"wal_object_store": "sqlite_objects", "offset_assignment": "even"}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of a fresh environment with the wheels.

    Third-party packages come from the environment that runs the tests; its own installation of Diskless does not,
    as a path that a .pth file names is searched for packages but not for .pth files.
    """
    python = environment_with(tmp_path_factory.mktemp("external"), [PROJECT, PROJECT / "spark", PLUGIN])
    (site_packages(python) / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return python


def test_diskless_comes_from_the_wheel(python):
    where = Path(run(python, "-I", "-c", "import diskless_core; print(diskless_core.__file__)").strip())

    assert where.is_relative_to(python.parents[1])


def test_the_plugin_is_listed_with_its_distribution(python):
    listed = json.loads(run(python.with_name("diskless"), "plugins", "list", "--json"))

    # packages of contrib/ are only half there: this environment has what they announce, not what they import
    assert not {"diskless", "diskless-sqlite-objects"} & {plugin["distribution"] for plugin in listed["quarantined"]}
    found = {(plugin["noun"], plugin["name"]): plugin for plugin in listed["plugins"]}
    for noun, name in SELECTED.items():
        plugin = found[noun, name]
        assert (plugin["distribution"], plugin["version"], plugin["default"]) == (
            "diskless-sqlite-objects",
            "3.2.1",
            False,
        )
    assert found["wal_object_store", "fsspec"]["distribution"] == "diskless"


def test_its_settings_are_described_and_checked(python, tmp_path):
    diskless = python.with_name("diskless")
    described = run(diskless, "plugins", "describe", "wal_object_store", "sqlite_objects")
    assert "wal_object_store.sqlite_objects.file (" in described

    bad = tmp_path / "server.properties"
    bad.write_text("wal_object_store=sqlite_objects\nwal_object_store.sqlite_objects.fil=x\n")
    result = subprocess.run([diskless, "plugins", "validate", bad], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "wal_object_store.sqlite_objects.file" in result.stderr


def test_a_broker_keeps_its_objects_in_the_plugin(python, tmp_path, topic):
    settings = {**SELECTED, "wal_object_store.sqlite_objects.file": "chosen.db", "diskless.fetch.cache.max.bytes": "0"}
    broker = BrokerProcess(tmp_path, settings, python=python)
    values = [b"value %d" % number for number in range(5)]
    try:
        broker.start()
        with broker.connect() as wire:
            create_topic(wire, topic)
            offsets = append(wire, topic, batch_of(*values[:3]), batch_of(values[3]), batch_of(values[4]))
        broker.kill()
        broker.start()
        with broker.connect() as wire:
            fetched = fetch(wire, topic, 0)
            assert read_values(fetched.records) == values
            assert batch_ranges(fetched.records) == [(0, 2), (4, 4), (6, 6)]
            assert batch_ranges(fetch(wire, topic, 3).records)[0] == (4, 4)
            assert list_offset(wire, topic, -1).offset == 7
            wire.send_together(*(produce_request(topic, {0: batch_of(b"more")}) for _ in range(3)), version=9)
            assert [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(3)] == [8, 10, 12]
            assert batch_ranges(fetch(wire, topic, 7).records) == [(8, 8), (10, 10), (12, 12)]
        broker.stop()
    finally:
        broker.end()

    assert offsets == [0, 4, 6]
    [database] = tmp_path.rglob("chosen.db")
    with sqlite3.connect(database) as connection:
        objects = [data for (data,) in connection.execute("SELECT data FROM object")]
    connection.close()
    assert len(objects) >= 4
    assert all(any(value in data for data in objects) for value in values)
