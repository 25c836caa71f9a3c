"""`diskless gateways plan`: the gateways of a cluster that nobody has built yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diskless_core.cli import common
from diskless_core.cli.main import main
from diskless_core.plugin_host.manager import PluginManager
from diskless_policies.kip1164 import Kip1164Placement
from tests.broken_plugins.stand_ins import announce_stand_ins

TWELVE = ("--brokers", "12", "--racks", "3", "--coordinators", "12")


def plan(*args):
    return CliRunner().invoke(main, ["gateways", "plan", *map(str, args)])


def planned(*args):
    result = plan(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_plan_has_the_figures_and_the_gateways_of_every_coordinator():
    result = plan("--brokers", 3, "--racks", 3, "--coordinators", 4)

    assert result.exit_code == 0
    assert result.stdout == (
        "gateway_placement=kip1164: 3 brokers in 3 racks, 4 coordinators\n"
        "  gateways of a coordinator in each rack: 1\n"
        "  coordinators that a broker is a gateway of: 4\n"
        "  network commits for one WAL object, at the worst: 2 (without gateways 2)\n"
        "\n"
        "coordinator  leader  rack-1  rack-2  rack-3\n"
        "0            1       1       2       3\n"
        "1            2       1       2       3\n"
        "2            3       1       2       3\n"
        "3            1       1       2       3\n"
    )


def test_as_json_it_has_every_coordinator_and_every_broker():
    answer = planned(*TWELVE)

    assert answer["placement"] == "kip1164"
    assert answer["gateways_per_rack"] == {"least": 1, "most": 1}
    assert answer["coordinators_per_broker"] == {"least": 3, "most": 3}
    assert (answer["network_commits"], answer["network_commits_without_gateways"]) == (2, 11)
    assert [(one["coordinator"], one["leader"]) for one in answer["plan"]] == [(n, n + 1) for n in range(12)]
    assert answer["plan"][4]["gateways"]["rack-2"] == [5]
    assert answer["brokers"][4] == {"node_id": 5, "rack": "rack-2", "coordinators": 3, "network_commits": 2}


def test_the_policy_is_the_configured_one_unless_another_is_named(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(
        "gateway_placement=rendezvous\ngateway_placement.rendezvous.gateways.per.rack=2\n", encoding="utf-8"
    )

    configured = planned(*TWELVE, "--config", path)
    overridden = planned(*TWELVE, "--config", path, "--override", "gateway_placement.rendezvous.gateways.per.rack=3")
    named = planned(*TWELVE, "--config", path, "--placement", "kip1164")

    assert (configured["placement"], configured["gateways_per_rack"]["most"]) == ("rendezvous", 2)
    assert (overridden["placement"], overridden["gateways_per_rack"]["most"]) == ("rendezvous", 3)
    assert named["placement"] == "kip1164"


def test_an_unknown_policy_is_refused_with_the_nearest_name():
    result = plan(*TWELVE, "--placement", "rendevous")

    assert result.exit_code == 1
    assert "there is no gateway_placement 'rendevous'" in result.stderr
    assert "did you mean rendezvous?" in result.stderr


def test_the_property_is_validated_like_that_of_any_noun(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(
        "gateway_placement=rendezvous\ngateway_placement.rendezvous.gateways.per.rack=0\n"
        "gateway_placement.rendezvous.gateways=1\n",
        encoding="utf-8",
    )

    result = CliRunner().invoke(main, ["plugins", "validate", str(path)])

    assert result.exit_code == 1
    assert "server.properties:2: gateway_placement.rendezvous.gateways.per.rack=0" in result.stderr
    assert "server.properties:3: gateway_placement.rendezvous.gateways: there is no such property" in result.stderr


@pytest.mark.parametrize("args", [(2, 3, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_cluster_that_cannot_be_is_a_usage_error(args):
    brokers, racks, coordinators = args

    assert plan("--brokers", brokers, "--racks", racks, "--coordinators", coordinators).exit_code == 2


def test_a_policy_that_cannot_be_made_is_told(monkeypatch):
    monkeypatch.setattr(common, "discover_plugins", lambda: PluginManager(announce_stand_ins()))

    result = plan(*TWELVE)

    assert result.exit_code == 1
    assert result.stderr.startswith("plugin gateway_placement.kip1164 did not start: NotImplementedError")


def test_a_policy_that_breaks_its_contract_is_told(monkeypatch):
    monkeypatch.setattr(Kip1164Placement, "place", lambda self, coordinators, brokers: {})

    result = plan("--brokers", 1, "--racks", 1, "--coordinators", 2)

    assert result.exit_code == 1
    assert result.stderr == (
        "plugin gateway_placement.kip1164 breaks its contract: it places the shards [], not [0, 1]\n"
    )


def test_every_process_comes_to_the_same_plan():
    def in_another_process(policy, seed):
        command = [
            Path(sys.executable).with_name("diskless"),
            "gateways",
            "plan",
            *TWELVE,
            "--placement",
            policy,
            "--json",
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout

    for policy in ("kip1164", "rendezvous"):
        assert json.loads(in_another_process(policy, "1")) == planned(*TWELVE, "--placement", policy)
