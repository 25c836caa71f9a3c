"""How a configuration is put together from its sources, and how all that is wrong with it is told."""

from __future__ import annotations

import pytest

from diskless_core.config.errors import ConfigError
from diskless_core.config.load import load_config
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.plugin_host.nouns import NOUNS
from tests.broken_plugins.stand_ins import announce_stand_ins
from tests.broken_plugins.zoo import announce

SECRET = "hunter2"
OBJECT_STORE = "wal_object_store.fsspec"
NO_VARIABLE = "no property has this environment variable"
NO_STORE = "there is no coordinator_store 'sql'; installed are sqlite"


@pytest.fixture
def load(tmp_path):
    """Load a configuration from the text of a file, overrides and variables."""

    def load(text=None, *overrides, **variables):
        path = None
        if text is not None:
            path = tmp_path / "server.properties"
            path.write_text(text, encoding="utf-8")
        environ = {f"DISKLESS_CONFIG_{name}": value for name, value in variables.items()}
        return load_config(path, overrides, environ, PluginManager([*announce_stand_ins(), announce("healthy")]))

    return load


@pytest.fixture
def problems(load):
    """All problems of a configuration, as text."""

    def problems(*args, **variables):
        with pytest.raises(ConfigError) as caught:
            load(*args, **variables)
        assert str(caught.value) == "\n".join(map(str, caught.value.problems))
        return [str(problem) for problem in caught.value.problems]

    return problems


DEFAULTS = {
    "coordinator_log": "local",
    "coordinator_store": "sqlite",
    "wal_object_store": "fsspec",
    "offset_assignment": "sequential",
    "gateway_placement": "kip1164",
    "orphan_detection": "listing",
    "remote_storage": "fsspec",
    "remote_log_metadata": "coordinator",
    "segment_compaction": "inline",
}
"""What operators rely on. A new noun need not be here."""


def test_without_any_source_everything_has_its_default(load):
    config = load()

    assert config.broker.node_id == 1
    selected = {noun: plugin.descriptor.name for noun, plugin in config.plugins.items()}
    assert selected == {noun.name: noun.default for noun in NOUNS.values()}
    assert selected.items() >= DEFAULTS.items()


def test_the_environment_wins_over_the_file_and_an_override_over_both(load):
    text = "node.id=2\nnum.partitions=2\nbroker.rack=in-file\n"

    broker = load(text, "node.id=4", NODE_ID="3", NUM_PARTITIONS="3").broker

    assert (broker.node_id, broker.num_partitions, broker.broker_rack) == (4, 3, "in-file")


def test_settings_of_a_plugin_come_from_every_source(load):
    config = load(
        f"{OBJECT_STORE}.url=file:///tmp\n",
        f"{OBJECT_STORE}.timeout.ms=5",
        WAL_OBJECT_STORE_FSSPEC_ENDPOINT_URL="http://s3",
    )

    settings = config.plugins["wal_object_store"].settings
    assert (settings.url, settings.timeout_ms, settings.endpoint_url) == ("file:///tmp", 5, "http://s3")


def test_a_backend_can_be_chosen_and_configured_in_the_environment(load):
    config = load(OFFSET_ASSIGNMENT="animal", OFFSET_ASSIGNMENT_ANIMAL_FAVOURITE_RACKS="a, b")

    selected = config.plugins["offset_assignment"]
    assert selected.descriptor.name == "animal"
    assert selected.settings.favourite_racks == ("a", "b")


def test_variables_of_other_programs_are_ignored(tmp_path):
    environ = {"PATH": "/bin", "DISKLESS_LOAD_PLUGINS": "", "KAFKA_NODE_ID": "x"}

    assert load_config(None, [], environ, PluginManager(announce_stand_ins())).broker.node_id == 1


def test_comments_continuations_escapes_and_umlauts_are_read_as_java_does(load):
    text = "# a comment\n! another\nbroker.rack : z\\u00fcrich-\\\n   s\u00fcd\ncluster.id=a\\=b\n"

    broker = load(text).broker

    assert (broker.broker_rack, broker.cluster_id) == ("z\u00fcrich-s\u00fcd", "a=b")


def test_all_problems_are_told_at_once(problems):
    text = f"node.id=first\nnum.partition=3\n\ncoordinator_store=sql\n{OBJECT_STORE}.timeout.ms=0\n"

    found = problems(text, "nonsense", "max.connections=0", NODE_IDD="1")

    assert sorted(found) == [
        "--override: ?: an override has to be of the form key=value",
        "--override: max.connections=0: it should be greater than or equal to 1",
        f"environment: DISKLESS_CONFIG_NODE_IDD: {NO_VARIABLE}; did you mean DISKLESS_CONFIG_NODE_ID?",
        "server.properties:1: node.id=first: it should be a valid integer, unable to parse string as an integer",
        "server.properties:2: num.partition: there is no such property; did you mean num.partitions?",
        f"server.properties:4: coordinator_store=sql: {NO_STORE}; did you mean sqlite?",
        f"server.properties:5: {OBJECT_STORE}.timeout.ms=0: it should be greater than or equal to 1",
    ]


def test_a_key_that_is_set_twice_is_told_with_both_lines(problems):
    text = "node.id=1\n# a note\nbroker.rack=a\\\n  b\nnode.id=2\n"

    assert problems(text) == [
        "server.properties:5: node.id: it is set twice, in line 1 and in line 5: keep one of them"
    ]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("node_id", "there is no such property; did you mean node.id?"),
        ("Node.Id", "there is no such property; did you mean node.id?"),
        ("wal_object_store.fsspec.ulr", "there is no such property; did you mean wal_object_store.fsspec.url?"),
        (
            "wal_object_store.fspec.url",
            "there is no wal_object_store 'fspec'; installed are fsspec; did you mean wal_object_store.fsspec.url?",
        ),
        ("wal_object_stores", "there is no such property; did you mean wal_object_store?"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_valid_one_and_without_its_value(problems, key, message):
    assert problems(f"{key}={SECRET}\n") == [f"server.properties:1: {key}: {message}"]


@pytest.mark.parametrize("key", ["log.dirs", "listeners"])
def test_a_list_that_may_not_be_empty_needs_a_value(problems, key):
    assert problems(f"{key}=\n") == [f"server.properties:1: {key}=: it needs a value"]


def test_settings_of_an_installed_plugin_that_is_not_chosen_are_allowed_anywhere(load):
    config = load(
        "offset_assignment.animal.step.size=2\n",
        "offset_assignment.animal.nonsense=2",
        OFFSET_ASSIGNMENT_ANIMAL_STEP_SIZE="3",
    )

    assert config.plugins["offset_assignment"].descriptor.name == "sequential"


def test_a_secret_is_in_no_message_and_in_no_repr(load, problems):
    config = load(f"{OBJECT_STORE}.secret.key={SECRET}\n")
    assert config.plugins["wal_object_store"].settings.secret_key.get_secret_value() == SECRET
    assert SECRET not in repr(config)

    twice = (
        f"{OBJECT_STORE}.secret.key={SECRET}\n{OBJECT_STORE}.secret.key={SECRET}\n{OBJECT_STORE}.secretkey={SECRET}\n"
    )
    assert SECRET not in "\n".join(problems(twice, SECRET))


def test_a_file_that_cannot_be_read_is_a_problem_like_others(tmp_path):
    missing = tmp_path / "server.properties"

    with pytest.raises(ConfigError, match="can't be read: No such file or directory"):
        load_config(missing, [], {}, PluginManager(announce_stand_ins()))


@pytest.mark.parametrize("content", [b"broker.rack=z\xfcrich\n", b"broker.rack=\\u12\n"])
def test_a_file_that_is_not_a_properties_file_is_a_problem(tmp_path, content):
    path = tmp_path / "server.properties"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match="can't be read"):
        load_config(path, [], {}, PluginManager(announce_stand_ins()))


def test_a_property_without_a_default_has_to_be_set():
    manager = PluginManager([*announce_stand_ins(), announce("leaks_secret", name="leaky")])

    with pytest.raises(ConfigError) as caught:
        load_config(None, ["offset_assignment=leaky"], {}, manager)

    assert [str(problem) for problem in caught.value.problems] == [
        "default: offset_assignment.leaky.password: it has to be set: Password of nobody."
    ]


def test_a_check_of_several_settings_together_is_told_for_the_whole_plugin():
    manager = PluginManager([*announce_stand_ins(), announce("pairs", name="pairs")])

    with pytest.raises(ConfigError) as caught:
        load_config(None, ["offset_assignment=pairs", "offset_assignment.pairs.first=1"], {}, manager)

    assert [str(problem) for problem in caught.value.problems] == [
        "configuration: offset_assignment.pairs: first and second go together"
    ]
