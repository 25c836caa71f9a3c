"""Brokers that tell where the others are, by HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from diskless_core.cli import admin_client
from diskless_core.cli.admin_client import AdminClientError, NoAnswerError, RefusedError, SilentError
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.main import main


class Brokers:
    """Three brokers at http://1 to http://3, of which each tells of those in `told`, and `controller` scans."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.told: dict[int, str | None] = {node_id: f"http://{node_id}" for node_id in (1, 2, 3)}
        self.at = {f"http://{node_id}": node_id for node_id in (1, 2, 3)}
        self.controller = 3
        self.asked: list[str] = []
        self.dies_with_answer = False
        self.slow: dict[str, float] = {}
        self.cluster_of: dict[str, str] = {}

    def ask(
        self,
        method: str,
        url: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: Any = None,
        node_id: Any = None,
        cluster_id: Any = None,
    ) -> Any:
        self.asked.append(f"{url}{path}")
        if url in self.down:
            raise NoAnswerError(f"no broker answers at {url}")
        if self.slow.get(url, 0) > (60 if timeout_s is None else timeout_s):
            raise SilentError("gave no answer in time")
        found = self.at[url]
        if path == "/cluster":
            brokers = [
                {"node_id": one, "rack": None, "is_fenced": False, "http": http} for one, http in self.told.items()
            ]
            return {
                "node_id": found,
                "cluster_id": self.cluster_of.get(url, "c"),
                "controller": 3,
                "brokers": brokers,
                "shards": [],
            }
        admin_client._require_broker(url, str(found), node_id)
        if path == "/missing":
            raise RefusedError("no", "no", 404)
        if found != self.controller:
            raise RefusedError("not here", "not here", 421, may_retry=True)
        if self.dies_with_answer:
            self.dies_with_answer, self.controller = False, 2
            self.down.add(url)
            raise NoAnswerError("gone")
        return f"{method} by {found}"


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(admin_client, "ask", made.ask)
    return made


def scan(cluster: ClusterAdmin, path: str = "/scan") -> Any:
    return cluster.ask_leader(lambda view: view.controller, "POST", path)


def test_the_controller_is_found_by_any_broker(brokers: Brokers) -> None:
    assert scan(ClusterAdmin(["http://1"])) == "POST by 3"
    assert brokers.asked == ["http://1/cluster", "http://3/scan"]


def test_a_broker_that_has_moved_meanwhile_is_found_again(brokers: Brokers) -> None:
    brokers.controller = 2
    assert scan(ClusterAdmin(["http://1"])) == "POST by 2"


def test_of_several_addresses_one_that_answers_is_enough_and_others_are_learnt(brokers: Brokers) -> None:
    brokers.down = {"http://1"}
    cluster = ClusterAdmin(["http://1", "http://2"])
    assert scan(cluster) == "POST by 3"
    brokers.down = {"http://1", "http://2"}
    assert cluster.view().node_id == 3


@pytest.mark.parametrize("given", [["http://1"], ["http://1", "http://2"]])
def test_a_broker_that_takes_its_time_is_waited_for_where_no_other_one_answers(
    brokers: Brokers, given: list[str]
) -> None:
    brokers.slow, brokers.down = {"http://1": 30}, {"http://2"}
    assert ClusterAdmin(given).view().node_id == 1
    brokers.slow = {"http://1": 100}
    with pytest.raises(SilentError):
        ClusterAdmin(given).view()


def test_of_two_brokers_a_slow_one_is_not_waited_for(brokers: Brokers) -> None:
    brokers.slow = {"http://1": 30}
    assert ClusterAdmin(["http://1", "http://2"]).view().node_id == 2


def test_a_leader_that_dies_with_the_answer_is_replaced(brokers: Brokers) -> None:
    brokers.dies_with_answer = True
    assert scan(ClusterAdmin(["http://3"])) == "POST by 2"


def test_nobody_there_is_told_at_once_and_a_refusal_too(brokers: Brokers) -> None:
    with pytest.raises(RefusedError):
        scan(ClusterAdmin(["http://3"]), "/missing")
    brokers.down = set(brokers.at)
    with pytest.raises(NoAnswerError, match="no broker answers at http://1"):
        scan(ClusterAdmin(["http://1", "http://2"]))


def test_patience_ends(brokers: Brokers) -> None:
    brokers.controller = 4
    with pytest.raises(RefusedError, match="not here"):
        scan(ClusterAdmin(["http://1"], patience_s=0))


def test_a_broker_that_tells_of_no_address_is_asked_where_it_was_met(brokers: Brokers) -> None:
    brokers.told = dict.fromkeys(brokers.told)
    assert scan(ClusterAdmin(["http://1", "http://3"])) == "POST by 3"
    with pytest.raises(AdminClientError, match=r"broker 3 is needed, and has told of no HTTP interface.*--url"):
        scan(ClusterAdmin(["http://1"]))


def test_another_broker_at_an_address_is_told(brokers: Brokers) -> None:
    brokers.told[3] = "http://2"
    with pytest.raises(AdminClientError, match="should be the HTTP interface of broker 3, and broker 2 answers there"):
        scan(ClusterAdmin(["http://1"]))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["http://a:1/, http://b:2,"], ["http://a:1", "http://b:2"]),
        (["http://a:1", "http://b:2/", "http://a:1/"], ["http://a:1", "http://b:2"]),
        (["http://a:1,http://b:2", "http://c:3"], ["http://a:1", "http://b:2", "http://c:3"]),
        (None, []),
        ([""], []),
    ],
)
def test_addresses_are_separated_by_commas_or_given_one_by_one(given: list[str] | None, found: list[str]) -> None:
    assert admin_client.given_addresses(given) == found


def test_all_addresses_that_a_command_is_given_are_asked(brokers: Brokers) -> None:
    brokers.down = {"http://2"}
    done = CliRunner().invoke(main, ["orphans", "scan", "--json", "--url", "http://1", "--url", "http://2"])
    assert (done.exit_code, json.loads(done.output)) == (0, "POST by 3")
    assert brokers.asked[0] == "http://1/cluster"


def test_a_command_for_one_broker_refuses_a_second_address(brokers: Brokers) -> None:
    for given in (["--url", "http://1", "--url", "http://2"], ["--url", "http://1,http://2"]):
        done = CliRunner().invoke(main, ["coordinator", "status", *given])
        assert done.exit_code == 1
        assert "this command asks one broker" in done.output
    assert brokers.asked == []


def test_a_broker_that_has_another_address_since_it_was_met_is_asked_where_it_says(brokers: Brokers) -> None:
    brokers.at["http://three"], brokers.told[3] = 3, None
    cluster = ClusterAdmin(["http://three", "http://1"])
    assert scan(cluster) == "POST by 3"
    brokers.down, brokers.told[3] = {"http://three"}, "http://3"
    assert scan(cluster) == "POST by 3"
    assert brokers.asked[-1] == "http://3/scan"


def test_addresses_of_two_clusters_are_refused(brokers: Brokers) -> None:
    cluster = ClusterAdmin(["http://1", "http://2"])
    cluster.view()
    brokers.down, brokers.cluster_of["http://2"] = {"http://1"}, "another"
    with pytest.raises(AdminClientError, match="addresses of one cluster"):
        cluster.view()
