"""What the cluster's demo does to whom: somebody is always left."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from diskless_core.cli.cluster_demo import story
from diskless_core.cli.cluster_demo.brokers import Fate
from diskless_core.cli.cluster_demo.screen import BrokerLine, Picture, Screen, render
from diskless_core.cli.cluster_demo.story import Act, Stage
from diskless_core.cli.cluster_demo.watch import Sight, sight_of
from diskless_core.cluster.view import BrokerView, ClusterView, ShardView

THREE = Stage(racks={1: "rack-1", 2: "rack-2", 3: "rack-3"}, leads={1: 2, 2: 5, 3: 2}, controller=3)


def test_the_controller_is_killed_and_the_busiest_of_the_others_stands_still():
    assert story.victims(Act.KILL, THREE) == [3]
    assert story.victims(Act.PAUSE, THREE) == [2]


def test_while_nobody_is_known_to_be_the_controller_the_busiest_is_killed():
    assert story.victims(Act.KILL, Stage(racks=THREE.racks, leads=THREE.leads, controller=None)) == [2]


def test_who_is_removed_has_a_neighbour_in_its_rack_and_is_not_the_newcomer():
    four = Stage(racks={**THREE.racks, 4: "rack-1"}, leads={4: 9, 2: 5}, controller=2)
    assert story.victims(Act.REMOVE, four, newcomer=4) == [1]


def test_the_busiest_rack_is_lost_with_all_of_its_brokers():
    stage = Stage(racks={1: "a", 2: "b", 3: "a", 4: "b"}, leads={1: 2, 2: 3, 3: 2}, controller=2)
    assert story.victims(Act.STOP_RACK, stage) == [1, 3]


def test_a_cluster_of_one_rack_loses_none():
    assert Act.STOP_RACK not in story.acts(1)
    assert story.acts(2) == list(Act)
    assert story.victims(Act.STOP_RACK, Stage(racks={1: "a", 2: "a"}, leads={}, controller=1)) == []


@given(
    racks=st.dictionaries(st.integers(1, 12), st.sampled_from(["a", "b", "c"]), min_size=2),
    leads=st.dictionaries(st.integers(1, 12), st.integers(0, 9)),
    controller=st.none() | st.integers(1, 12),
    act=st.sampled_from(Act),
)
def test_victims_run_and_somebody_is_left(racks, leads, controller, act):
    victims = story.victims(act, Stage(racks=racks, leads=leads, controller=controller), newcomer=max(racks))
    assert set(victims) < set(racks)


@pytest.mark.parametrize(("brokers", "racks", "word"), [(1, 1, "--brokers"), (3, 4, "--racks"), (3, 0, "--racks")])
def test_what_cannot_be_is_said(brokers, racks, word):
    assert any(word in problem for problem in story.problems(brokers, racks))


def test_brokers_go_to_racks_in_turn():
    assert story.problems(4, 3) == []
    assert [story.rack_of(node_id, 3) for node_id in (1, 2, 3, 4)] == ["rack-1", "rack-2", "rack-3", "rack-1"]


def picture() -> Picture:
    told = ClusterView(
        node_id=1,
        cluster_id="c",
        controller=2,
        brokers=[BrokerView(node_id=node_id, rack=None, is_fenced=node_id == 1, http=None) for node_id in (1, 2)],
        shards=[ShardView(shard="cluster-0", leader=2, term=1), ShardView(shard="diskless-0", leader=None, term=1)],
    )
    return Picture(
        title="broker 1 is gone",
        brokers=[
            BrokerLine(node_id=1, rack="rack-1", fate=Fate.KILLED, pid=None),
            BrokerLine(node_id=2, rack="rack-2", fate=Fate.RUNNING, pid=77),
        ],
        sight=sight_of(told, {1: 10, 2: 1_000}, {2: 5}),
        acknowledged=12_345,
        read=12_000,
        produced_s=600,
        consumed_s=590,
        requests={"PUT": 1_005},
    )


def test_the_table_shows_brokers_who_leads_and_what_the_bucket_is_asked():
    text = io.StringIO()
    Console(file=text, width=120).print(render(picture()))
    for part in (
        "killed",
        "fenced",
        "live, controller",
        "pid 77",
        "diskless-0 at -",
        "12,345",
        "1,010 up",
        "1,005 PUT",
    ):
        assert part in text.getvalue()


def test_without_a_terminal_there_are_lines_and_not_too_many():
    text = io.StringIO()
    with Screen(Console(file=text, width=40)) as screen:
        screen.tell(0.0, "it begins")
        for tenths in range(50):
            screen.show(tenths / 10, picture())
        screen.end("it ends")
    lines = text.getvalue().splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[0].endswith("it begins")
    assert "12,345 acknowledged (600/s)" in lines[1]
    assert "\x1b" not in text.getvalue()


def test_nothing_is_known_before_the_first_look():
    assert Sight().leads() == {}
